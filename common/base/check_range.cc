#include "common/base/check_range.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::base {

absl::Status CheckRange(absl::string_view name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return BadField(name, "BAD_OPTION",
                  absl::StrCat(name, " = ", value, "; it must be ", least, "..", most));
}

absl::Status CheckShare(absl::string_view name, double value) {
  if (value > 0 && value <= 1) return absl::OkStatus();  // not so for NaN
  return BadField(name, "BAD_OPTION",
                  absl::StrCat(name, " = ", value, "; it must be above 0 and at most 1"));
}

}  // namespace tessera::base
