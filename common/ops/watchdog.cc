#include "common/ops/watchdog.h"

#include "absl/strings/str_cat.h"

namespace tessera::ops {

absl::Status Watchdog::Look(bool has_work, int64_t steps_done) {
  const absl::Time now = clock_.Now();
  base::MutexLock lock(mutex_);
  if (!has_work || !stuck_ || steps_done != steps_) {
    stuck_ = has_work;
    steps_ = steps_done;
    since_ = now;
    return absl::OkStatus();
  }
  if (now - since_ < limit_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("has work and has finished no step for ",
                                             absl::ToInt64Seconds(now - since_), " s, after ",
                                             steps_done, " steps"));
}

}  // namespace tessera::ops
