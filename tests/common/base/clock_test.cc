#include "common/base/clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace tessera::base {
namespace {

TEST(RealClockTest, NeverRunsBackwards) {
  Clock& clock = RealClock();
  absl::Time last = clock.Now();
  for (int i = 0; i < 10'000; ++i) {
    const absl::Time now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(RealClockTest, WaitUntilReturnsAtTheDeadlineWithoutASignal) {
  Clock& clock = RealClock();
  Mutex mutex;
  CondVar cond;
  MutexLock lock(mutex);
  const absl::Time deadline = clock.Now() + absl::Milliseconds(5);
  while (clock.Now() < deadline) clock.WaitUntil(cond, mutex, deadline);
  EXPECT_GE(clock.Now(), deadline);
}

TEST(RealClockTest, WaitUntilAPastDeadlineReturns) {
  Mutex mutex;
  CondVar cond;
  MutexLock lock(mutex);
  RealClock().WaitUntil(cond, mutex, RealClock().Now() - absl::Hours(1));
  RealClock().WaitUntil(cond, mutex, absl::InfinitePast());
}

TEST(RealClockTest, ASignalEndsAWaitWithoutDeadline) {
  Mutex mutex;
  CondVar cond;
  bool ready = false;
  std::thread signaller([&] {
    MutexLock lock(mutex);
    ready = true;
    cond.Signal();
  });
  {
    MutexLock lock(mutex);
    while (!ready) RealClock().WaitUntil(cond, mutex, absl::InfiniteFuture());
  }
  signaller.join();
}

TEST(CondVarTest, WaitForTellsATimeoutAndHoldsTheMutexAfterwards) {
  Mutex mutex;
  CondVar cond;
  int guarded = 0;
  std::thread other;
  {
    MutexLock lock(mutex);
    while (cond.WaitFor(mutex, absl::Milliseconds(1))) {
    }  // a spurious wake-up is no timeout
    other = std::thread([&] {
      MutexLock other_lock(mutex);
      ++guarded;
      cond.SignalAll();
    });
    while (guarded == 0) cond.WaitFor(mutex, absl::InfiniteDuration());
    EXPECT_EQ(guarded, 1);
  }
  other.join();
}

}  // namespace
}  // namespace tessera::base
