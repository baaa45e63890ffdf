#include "services/gateway/api/full_sink.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

class FullSinkTest : public ::testing::Test {
 protected:
  void Fill() {
    sink_.Fill(clock_.Now() + absl::Seconds(10), [this] { given_up_.set_value(); });
  }

  testing::FakeClock clock_;
  std::promise<void> given_up_;  // told twice, it throws
  base::Timers timers_{clock_};
  FullSink sink_{timers_};
};

TEST_F(FullSinkTest, AClientThatReadsResumesTheAnswerOnce) {
  EXPECT_FALSE(sink_.Empty());
  EXPECT_FALSE(sink_.was_full());
  Fill();
  EXPECT_TRUE(sink_.Empty());
  EXPECT_FALSE(sink_.Empty());
  EXPECT_FALSE(sink_.Expire()) << "it had begun to run when the client read";
  EXPECT_TRUE(sink_.was_full());
}

TEST_F(FullSinkTest, AClientThatDoesNotReadIsGivenUp) {
  Fill();
  clock_.Advance(absl::Seconds(10));
  given_up_.get_future().get();
  EXPECT_TRUE(sink_.Expire());
  EXPECT_FALSE(sink_.Empty()) << "nothing is resumed any more";
}

TEST_F(FullSinkTest, TimeCountsFromTheLastFilling) {
  Fill();
  clock_.Advance(absl::Seconds(9));
  EXPECT_TRUE(sink_.Empty());
  Fill();
  std::promise<void> later;
  timers_.At(clock_.Now() + absl::Seconds(9), [&later] { later.set_value(); });
  auto given_up = given_up_.get_future();
  clock_.Advance(absl::Seconds(9));
  later.get_future().get();
  EXPECT_NE(given_up.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  clock_.Advance(absl::Seconds(1));
  given_up.get();
}

}  // namespace
}  // namespace tessera::gateway
