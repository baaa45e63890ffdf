#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"

// Typed reading of one object of a tokenizer file. Errors are INVALID_ARGUMENT with reason
// BAD_TOKENIZER and the path of the value, e.g. "model.merges[7]".
namespace tessera::text {

absl::Status BadTokenizer(absl::string_view path, absl::string_view what);

// UNIMPLEMENTED, reason UNSUPPORTED_TOKENIZER: names path, value and what is supported.
absl::Status UnsupportedTokenizer(absl::string_view path, absl::string_view value,
                                  absl::string_view supported);

// Ids above this are refused: tables indexed by id must stay small whatever a file says.
constexpr int64_t kMaxId = (int64_t{1} << 22) - 1;
absl::StatusOr<int32_t> ReadId(const base::Json& value, absl::string_view path);

class Fields {
 public:
  // Borrows `object`. Fails when it is no object.
  static absl::StatusOr<Fields> Of(const base::Json& object, absl::string_view path);

  // nullptr when absent or null.
  const base::Json* Find(absl::string_view key) const;
  absl::StatusOr<const base::Json*> Array(absl::string_view key) const;
  absl::StatusOr<std::string> String(absl::string_view key) const;
  absl::StatusOr<std::string> String(absl::string_view key, absl::string_view fallback) const;
  absl::StatusOr<bool> Bool(absl::string_view key) const;
  absl::StatusOr<bool> Bool(absl::string_view key, bool fallback) const;
  absl::StatusOr<int32_t> Id(absl::string_view key) const;

  std::string PathOf(absl::string_view key) const;
  const std::string& path() const { return path_; }

 private:
  Fields(const base::Json* object, absl::string_view path) : object_(object), path_(path) {}
  absl::StatusOr<const base::Json*> Present(absl::string_view key) const;

  const base::Json* object_;
  std::string path_;
};

}  // namespace tessera::text
