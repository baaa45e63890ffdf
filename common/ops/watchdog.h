#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace tessera::ops {

// Tells whether a thread that takes work step by step has got stuck, from two numbers that it
// publishes. It knows only what it is shown: looks must be well more frequent than `limit`. Any
// thread.
class Watchdog {
 public:
  // `clock` outlives it.
  Watchdog(base::Clock& clock, absl::Duration limit) : clock_(clock), limit_(limit) {}

  // UNAVAILABLE when every look for `limit` or longer has seen work and the same count of steps.
  absl::Status Look(bool has_work, int64_t steps_done);

 private:
  base::Clock& clock_;
  const absl::Duration limit_;
  base::Mutex mutex_;
  bool stuck_ ABSL_GUARDED_BY(mutex_) = false;  // since `since_`, as far as the looks tell
  int64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::ops
