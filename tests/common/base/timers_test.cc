#include "common/base/timers.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/base/bounded_queue.h"
#include "tests/support/fake_clock.h"

namespace tessera::base {
namespace {

class TimersTest : public ::testing::Test {
 protected:
  std::function<void()> Say(int number) {
    return [this, number] { said_.TryPush(int{number}); };
  }
  int Next() { return said_.Pop().value(); }

  testing::FakeClock clock_;
  base::BoundedQueue<int> said_{16};
  Timers timers_{clock_};  // last: its thread uses the others
};

TEST_F(TimersTest, WhatIsDueRunsInTheOrderOfTimeAndOfAsking) {
  const absl::Time now = clock_.Now();
  timers_.At(now + absl::Seconds(2), Say(3));
  timers_.At(now + absl::Seconds(1), Say(1));
  timers_.At(now + absl::Seconds(1), Say(2));
  timers_.At(now + absl::Seconds(9), Say(4));
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(Next(), 1);
  EXPECT_EQ(Next(), 2);
  EXPECT_EQ(Next(), 3);
  EXPECT_FALSE(said_.TryPop().has_value());
  clock_.Advance(absl::Seconds(7));
  EXPECT_EQ(Next(), 4);
}

TEST_F(TimersTest, WhatIsCancelledDoesNotRun) {
  const Timers::Id first = timers_.At(clock_.Now() + absl::Seconds(1), Say(1));
  timers_.At(clock_.Now() + absl::Seconds(1), Say(2));
  timers_.Cancel(first);
  timers_.Cancel(first);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Next(), 2);
  EXPECT_FALSE(said_.TryPop().has_value());
  timers_.Cancel(first);
}

TEST_F(TimersTest, AFunctionMayAskForItsNextTime) {
  int left = 3;
  std::function<void()> again = [&] {
    const int now = left--;
    if (left > 0) timers_.At(clock_.Now(), again);
    said_.TryPush(int{now});  // behind the last of these the test, and what is captured, may end
  };
  timers_.At(clock_.Now(), again);
  EXPECT_EQ(Next(), 3);
  EXPECT_EQ(Next(), 2);
  EXPECT_EQ(Next(), 1);
}

TEST_F(TimersTest, WhatIsNotDueGoesWithTheTimers) {
  auto kept = std::make_shared<int>(1);
  {
    Timers timers(clock_);
    timers.At(clock_.Now() + absl::Hours(1), [kept] {});
    EXPECT_EQ(kept.use_count(), 2);
  }
  EXPECT_EQ(kept.use_count(), 1);
}

}  // namespace
}  // namespace tessera::base
