#pragma once

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace tessera::base {

// Time as a dependency. Any thread. tests/support/fake_clock.h has the other implementation.
class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic within a process; comparable with deadlines made from the same clock.
  virtual absl::Time Now() const = 0;
  // The date, for what other machines read and keep, such as an expiry: it may jump.
  virtual absl::Time WallTime() const = 0;
  // Waits on `cond` (REQUIRES: `mutex` held) until it is signalled or `deadline` has passed.
  virtual void WaitUntil(CondVar& cond, Mutex& mutex, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;
};

// The system's clock; lives for the whole process.
Clock& RealClock();

}  // namespace tessera::base
