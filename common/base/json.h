#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

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

// The whole file, at most `max_bytes`; NOT_FOUND when absent, with its path.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);

// ReadFile, then ParseJson; errors name the path.
absl::StatusOr<Json> ReadJsonFile(const std::string& path, const JsonLimits& limits = {});

}  // namespace tessera::base
