#pragma once

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace tessera::testing {

// Time that stands still until a test moves it. Any thread.
class FakeClock final : public base::Clock {
 public:
  absl::Time Now() const override {
    base::MutexLock lock(mutex_);
    return now_;
  }
  absl::Time WallTime() const override {
    base::MutexLock lock(mutex_);
    return now_ + wall_ahead_;
  }
  // As when somebody sets the date.
  void SetDateAhead(absl::Duration by) {
    base::MutexLock lock(mutex_);
    wall_ahead_ = by;
  }
  void Advance(absl::Duration by) {
    base::MutexLock lock(mutex_);
    now_ += by;
  }
  // Wakes early, as a condition may: callers look at Now() and wait again, so a moved clock is
  // seen.
  void WaitUntil(base::CondVar& cond, base::Mutex& mutex, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (Now() < deadline) cond.WaitFor(mutex, absl::Milliseconds(1));
  }

 private:
  mutable base::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'700'000'000);
  absl::Duration wall_ahead_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::testing
