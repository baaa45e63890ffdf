#include "services/gateway/gateway_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::gateway {
namespace {

using ::testing::HasSubstr;

TEST(GatewayMetricsTest, RequestsUnderWayAreAGaugeThatBeginsAtZero) {
  metrics::Metrics all("m");
  const GatewayMetrics gateway(all);
  EXPECT_THAT(all.Text(), HasSubstr("tessera_gateway_inflight_requests{model_name=\"m\"} 0\n"));
  gateway.SetInflight(3);
  EXPECT_THAT(all.Text(), HasSubstr("tessera_gateway_inflight_requests{model_name=\"m\"} 3\n"));
}

TEST(GatewayMetricsTest, WhatRequestsFeedIsThereFromTheStart) {
  metrics::Metrics all("m");
  const GatewayMetrics gateway(all);
  EXPECT_THAT(all.Text(), HasSubstr("tessera_gateway_queued_requests{model_name=\"m\"} 0\n"));
  gateway.requests().Count(RequestKind::kUpload, absl::CancelledError(""), "upload");
  EXPECT_THAT(all.Text(), HasSubstr("tessera_gateway_client_cancellations_total{model_name=\"m\","
                                    "phase=\"upload\"} 1\n"));
}

}  // namespace
}  // namespace tessera::gateway
