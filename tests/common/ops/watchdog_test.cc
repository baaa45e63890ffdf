#include "common/ops/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace tessera::ops {
namespace {

class WatchdogTest : public ::testing::Test {
 protected:
  // One look every ten seconds, as probes come.
  bool AliveAfter10s(bool has_work, int64_t steps) {
    clock_.Advance(absl::Seconds(10));
    return watchdog_.Look(has_work, steps).ok();
  }

  testing::FakeClock clock_;
  Watchdog watchdog_{clock_, absl::Seconds(30)};
};

TEST_F(WatchdogTest, WorkWithoutAStepForTheLimitIsStuck) {
  EXPECT_TRUE(AliveAfter10s(true, 5));
  EXPECT_TRUE(AliveAfter10s(true, 5));
  EXPECT_TRUE(AliveAfter10s(true, 5));
  clock_.Advance(absl::Seconds(10) - absl::Nanoseconds(1));
  EXPECT_TRUE(watchdog_.Look(true, 5).ok());
  clock_.Advance(absl::Nanoseconds(1));
  const absl::Status status = watchdog_.Look(true, 5);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no step for 30 s"));
  EXPECT_FALSE(AliveAfter10s(true, 5)) << "it stays stuck";
}

TEST_F(WatchdogTest, AStepSetsItBack) {
  EXPECT_TRUE(AliveAfter10s(true, 5));
  for (int64_t steps = 6; steps < 20; ++steps) EXPECT_TRUE(AliveAfter10s(true, steps / 2));
  EXPECT_TRUE(AliveAfter10s(true, 100));
  EXPECT_TRUE(AliveAfter10s(true, 100));
  EXPECT_TRUE(AliveAfter10s(true, 100));
  EXPECT_FALSE(AliveAfter10s(true, 100));
  EXPECT_TRUE(AliveAfter10s(true, 101)) << "it went on after all";
}

TEST_F(WatchdogTest, IdlenessIsNotStuck) {
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(AliveAfter10s(false, 5));
  // Idle for long, then work begins: its time counts from there.
  EXPECT_TRUE(AliveAfter10s(true, 5));
  EXPECT_TRUE(AliveAfter10s(true, 5));
  EXPECT_TRUE(AliveAfter10s(false, 5)) << "what it had was cancelled";
  EXPECT_TRUE(AliveAfter10s(true, 5));
  EXPECT_TRUE(AliveAfter10s(true, 5));
  EXPECT_TRUE(AliveAfter10s(true, 5));
  EXPECT_FALSE(AliveAfter10s(true, 5));
}

TEST_F(WatchdogTest, TheFirstLookTellsNothing) {
  clock_.Advance(absl::Hours(1));
  EXPECT_TRUE(watchdog_.Look(true, 0).ok());
}

}  // namespace
}  // namespace tessera::ops
