#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/json.h"

namespace tessera::decode {

// INVALID_ARGUMENT that blames `key`: MODEL_CONFIG_INVALID when the value makes no sense,
// MODEL_UNSUPPORTED when it does, but not here. Values are clipped.
absl::Status InvalidKey(absl::string_view key, absl::string_view problem);
absl::Status UnsupportedKey(absl::string_view key, const base::Json& value,
                            absl::string_view supported);

// One object of a config.json: typed access that remembers which keys were read. An absent key and
// null both mean the default. Borrows the object. One thread.
class ConfigReader {
 public:
  // `path` names the object in messages: "" or "text_config.". REQUIRES: object.is_object().
  ConfigReader(const base::Json& object, std::string path)
      : object_(object), path_(std::move(path)) {}

  // nullptr when absent or null.
  const base::Json* Find(absl::string_view key);

  // A value of another type or outside [min, max] is INVALID_ARGUMENT with key, value and range.
  absl::StatusOr<int64_t> Int(absl::string_view key, int64_t fallback, int64_t min, int64_t max);
  absl::StatusOr<std::optional<int64_t>> OptionalInt(absl::string_view key, int64_t min,
                                                     int64_t max);
  absl::StatusOr<double> Number(absl::string_view key, double fallback, double min, double max);
  absl::StatusOr<bool> Bool(absl::string_view key, bool fallback);
  absl::StatusOr<std::string> String(absl::string_view key, absl::string_view fallback);
  // One id, or a list of at most kMaxIds ids; empty when absent.
  static constexpr size_t kMaxIds = 64;
  absl::StatusOr<std::vector<int32_t>> Ids(absl::string_view key, int64_t max);

  // The full name of a key, as in messages.
  std::string Name(absl::string_view key) const;
  // Marks keys that nobody has to read.
  void Ignore(absl::Span<const absl::string_view> keys);
  // Full names of keys neither read nor ignored, in the file's order.
  std::vector<std::string> UnreadKeys() const;

 private:
  const base::Json& object_;
  const std::string path_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace tessera::decode
