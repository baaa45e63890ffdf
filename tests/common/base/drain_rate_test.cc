#include "common/base/drain_rate.h"

#include <gtest/gtest.h>

namespace tessera::base {
namespace {

TEST(DrainRateTest, IsThatOfTheTimeInWhichSomethingWaits) {
  DrainRate rate;
  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  rate.Observe(1000, false, now);
  now += absl::Seconds(100);
  EXPECT_EQ(rate.TimeFor(1, now), absl::Seconds(1)) << "nothing is known";
  for (uint64_t i = 0; i <= 20; ++i) {  // 10 a second
    rate.Observe(1000 + i, true, now);
    now += absl::Milliseconds(100);
  }
  EXPECT_NEAR(rate.PerSecond(now), 10, 0.01);
  EXPECT_EQ(rate.TimeFor(1000, now), absl::Minutes(1));
  EXPECT_EQ(rate.TimeFor(0, now), absl::Milliseconds(100));
  rate.Observe(5000, false, now);  // idle: it is remembered for a minute
  EXPECT_NEAR(rate.PerSecond(now + absl::Seconds(50)), 10, 0.01);
  EXPECT_EQ(rate.PerSecond(now + absl::Seconds(70)), 0);
}

TEST(DrainRateTest, FollowsTheLastSecondsAndSurvivesARestart) {
  DrainRate rate;
  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  uint64_t ended = 0;
  for (int i = 0; i < 100; ++i, now += absl::Milliseconds(100)) rate.Observe(ended += 5, true, now);
  for (int i = 0; i < 60; ++i, now += absl::Milliseconds(100)) rate.Observe(ended += 1, true, now);
  EXPECT_NEAR(rate.PerSecond(now), 10, 0.5);
  for (int i = 0; i < 20; ++i, now += absl::Milliseconds(100)) {
    rate.Observe(static_cast<uint64_t>(2 * i), true, now);
  }
  EXPECT_NEAR(rate.PerSecond(now), 20, 0.5);
}

}  // namespace
}  // namespace tessera::base
