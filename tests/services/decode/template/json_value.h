#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/decode/template/value.h"

namespace tessera::decode::jinja {

// A template's value from JSON, as Python's json.loads reads it: order of keys kept, integers of
// any size. Every string (keys apart) is untrusted when `untrusted` is set.
absl::StatusOr<Value> ValueFromJson(absl::string_view json, bool untrusted);

}  // namespace tessera::decode::jinja
