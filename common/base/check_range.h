#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera::base {

// OK when `value` of the option `name` is in [least, most], else INVALID_ARGUMENT (reason
// BAD_OPTION, field `name`) with value and range.
absl::Status CheckRange(absl::string_view name, int64_t value, int64_t least, int64_t most);

// OK when `value` of the option `name` is above 0 and at most 1, else INVALID_ARGUMENT of that
// kind.
absl::Status CheckShare(absl::string_view name, double value);

}  // namespace tessera::base
