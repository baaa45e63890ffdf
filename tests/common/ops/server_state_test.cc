#include "common/ops/server_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/metrics/names.h"
#include "common/ops/pages.h"
#include "tests/support/fake_clock.h"

namespace tessera::ops {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ServerStateTest : public ::testing::Test {
 protected:
  Page Ready() {
    Handlers handlers;
    handlers.readiness = state_.Readiness();
    return PageAt("/readyz", handlers);
  }

  testing::FakeClock clock_;
  metrics::Metrics metrics_{"m"};
  ServerState state_{metrics_, clock_, "1.2.3"};
};

TEST_F(ServerStateTest, ReadyWhileLoadedAndNotDraining) {
  EXPECT_EQ(Ready().status, 503);
  EXPECT_EQ(Ready().body, "model: is being loaded\ncanary: ok\nserving: ok\n");
  EXPECT_EQ(state_.Health(), absl::UnavailableError("model: is being loaded"));
  EXPECT_FALSE(state_.loaded());
  state_.SetLoaded();
  EXPECT_TRUE(state_.loaded());
  EXPECT_EQ(Ready().status, 200);
  EXPECT_EQ(Ready().body, "model: ok\ncanary: ok\nserving: ok\n");
  EXPECT_TRUE(state_.Health().ok());
  state_.SetDraining();
  EXPECT_EQ(Ready().status, 503);
  EXPECT_EQ(Ready().body, "model: ok\ncanary: ok\nserving: draining\n");
  EXPECT_EQ(state_.Health(), absl::UnavailableError("serving: draining"));
}

TEST_F(ServerStateTest, AFailedCanaryIsNeverReadyAndSaysWhy) {
  EXPECT_THAT(metrics_.Text(), HasSubstr("tessera_canary_present{model_name=\"m\"} 0\n"));
  state_.SetCanary(true, absl::FailedPreconditionError("the model is blind"));
  state_.SetLoaded();
  EXPECT_EQ(Ready().status, 503);
  EXPECT_EQ(Ready().body, "model: ok\ncanary: the model is blind\nserving: ok\n");
  EXPECT_EQ(state_.Health(), absl::UnavailableError("canary: the model is blind"));
  EXPECT_EQ(state_.ReadyLine(), "never ready: canary: the model is blind");
  EXPECT_THAT(metrics_.Text(), HasSubstr("tessera_canary_present{model_name=\"m\"} 1\n"));
}

TEST_F(ServerStateTest, WithoutAModelThereAreNoSeriesOfOne) {
  metrics::Metrics metrics("g");
  ServerState state(metrics, clock_, "1.2.3", /*has_model=*/false);
  state.SetLoaded();
  EXPECT_TRUE(state.Health().ok());
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("tessera_canary_present")));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("tessera_model_load")));
}

TEST_F(ServerStateTest, NoCanaryIsReady) {
  state_.SetCanary(false, absl::OkStatus());
  state_.SetLoaded();
  EXPECT_EQ(Ready().status, 200);
  EXPECT_EQ(state_.ReadyLine(), "ready");
  EXPECT_THAT(metrics_.Text(), HasSubstr("tessera_canary_present{model_name=\"m\"} 0\n"));
}

TEST_F(ServerStateTest, TellsStartBuildLoadAndDrain) {
  EXPECT_THAT(metrics_.Text(), HasSubstr("tessera_draining{model_name=\"m\"} 0\n"));
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("tessera_model_load_duration_seconds{model_name=\"m\"} 0\n"));
  clock_.Advance(absl::Seconds(7));
  state_.SetLoaded();
  state_.SetDraining();
  state_.Update();
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("tessera_draining{model_name=\"m\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tessera_model_load_duration_seconds{model_name=\"m\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("tessera_build_info{model_name=\"m\",version=\"1.2.3\"} 1\n"));
  EXPECT_EQ(metrics_.GetGauge(metrics::kStartTimestamp).value(), 1'700'000'000);
  EXPECT_GT(metrics_.GetGauge(metrics::kProcessOpenFds).value(), 0);
}

}  // namespace
}  // namespace tessera::ops
