#include "common/base/detached_call.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace tessera::base {
namespace {

// A call that hangs until it is let go. Shared with its thread, which may outlive the test.
struct Hanging {
  Mutex mutex;
  CondVar changed;
  int started ABSL_GUARDED_BY(mutex) = 0;
  bool over ABSL_GUARDED_BY(mutex) = false;

  int Run() {
    MutexLock lock(mutex);
    ++started;
    changed.SignalAll();
    while (!over) changed.Wait(mutex);
    return started;
  }
  void AwaitStart() {
    MutexLock lock(mutex);
    while (started == 0) changed.Wait(mutex);
  }
  void End() {
    MutexLock lock(mutex);
    over = true;
    changed.SignalAll();
  }
};

TEST(DetachedCallTest, EachBeginHasItsResultOnce) {
  int calls = 0;
  DetachedCall<int> call([&calls] { return ++calls; });
  for (const int expected : {1, 2}) {
    ASSERT_TRUE(call.Begin().ok());
    EXPECT_EQ(call.Await(absl::InfiniteDuration()), expected);
    EXPECT_EQ(call.Await(absl::ZeroDuration()), std::nullopt);
  }
}

TEST(DetachedCallTest, WhatTakesLongerIsNotBegunTwiceAndHasItsResultLater) {
  const auto hanging = std::make_shared<Hanging>();
  DetachedCall<int> call([hanging] { return hanging->Run(); });
  ASSERT_TRUE(call.Begin().ok());
  hanging->AwaitStart();
  EXPECT_EQ(call.Await(absl::Milliseconds(1)), std::nullopt);
  ASSERT_TRUE(call.Begin().ok());
  hanging->End();
  EXPECT_EQ(call.Await(absl::InfiniteDuration()), 1);
}

TEST(DetachedCallTest, ACancelEndsWhoWaitsAndNobodyWaitsForTheCall) {
  const auto hanging = std::make_shared<Hanging>();
  {
    DetachedCall<int> call([hanging] { return hanging->Run(); });
    ASSERT_TRUE(call.Begin().ok());
    hanging->AwaitStart();
    std::thread waiter([&call] { EXPECT_EQ(call.Await(absl::InfiniteDuration()), std::nullopt); });
    call.Cancel();
    waiter.join();
    EXPECT_TRUE(call.cancelled());
    EXPECT_EQ(call.Await(absl::InfiniteDuration()), std::nullopt);
  }
  hanging->End();
}

TEST(DetachedCallTest, OnceCancelledNothingIsBegun) {
  DetachedCall<int> call([] { return 1; });
  call.Cancel();
  ASSERT_TRUE(call.Begin().ok());
  EXPECT_EQ(call.Await(absl::InfiniteDuration()), std::nullopt);
}

}  // namespace
}  // namespace tessera::base
