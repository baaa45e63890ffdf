#include "common/base/clock.h"

#include <chrono>

namespace tessera::base {
namespace {

// Wall time at start plus a monotonic distance: never runs backwards.
class SystemClock final : public Clock {
 public:
  absl::Time Now() const override {
    return start_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_start_);
  }
  absl::Time WallTime() const override {
    return absl::FromChrono(std::chrono::system_clock::now());
  }
  void WaitUntil(CondVar& cond, Mutex& mutex, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const absl::Duration left = deadline - Now();
    if (left > absl::ZeroDuration()) cond.WaitFor(mutex, left);
  }

 private:
  const absl::Time start_ = absl::FromChrono(std::chrono::system_clock::now());
  const std::chrono::steady_clock::time_point steady_start_ = std::chrono::steady_clock::now();
};

}  // namespace

Clock& RealClock() {
  static SystemClock& clock = *new SystemClock();
  return clock;
}

}  // namespace tessera::base
