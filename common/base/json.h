#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::base {

using Json = nlohmann::ordered_json;  // keeps the order of keys, as Python's dict does

struct JsonLimits {
  int max_depth = 64;
  size_t max_bytes = size_t{64} << 20;
  // Of all kinds, at every depth. A value takes up to some 100 bytes of memory, however short it
  // is.
  size_t max_values = std::numeric_limits<size_t>::max();
};

// Parses one UTF-8 JSON document. INVALID_ARGUMENT with the byte offset: syntax, invalid UTF-8,
// deeper, longer or of more values than the limits (which are kept while reading, so neither stack
// nor memory is at risk),
// the same key twice in one object, a NUL byte.
absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits = {});

// Long string values under certain keys that stay where they are, in the text: for what a document
// carries rather than says, such as a picture. In the parsed document stands a sign in the place of
// each, a string that no document can hold.
class LongStrings {
 public:
  // A value under one of `keys` of an object stays when it has `least_bytes` or more between its
  // quotes, all of them ASCII that stands for itself: no escapes.
  LongStrings(std::vector<std::string> keys, size_t least_bytes)
      : keys_(std::move(keys)), least_bytes_(least_bytes) {}

  // What `value`, a string of the document, says: what it is the sign of, else itself. Valid while
  // the text and `value` are.
  absl::string_view Of(const std::string& value) const;

  // For ParseJson.
  const std::vector<std::string>& keys() const { return keys_; }
  size_t least_bytes() const { return least_bytes_; }
  std::string Add(absl::string_view in_text);

 private:
  const std::vector<std::string> keys_;
  const size_t least_bytes_;
  std::vector<absl::string_view> in_text_;
};

// ParseJson whose `long_strings` stay in `text`; others that are as long and as plain are copied
// once. What is refused is refused in the same words.
absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits,
                               LongStrings& long_strings);

// The whole file, at most `max_bytes`; NOT_FOUND when absent, with its path.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);

// ReadFile, then ParseJson; errors name the path.
absl::StatusOr<Json> ReadJsonFile(const std::string& path, const JsonLimits& limits = {});

}  // namespace tessera::base
