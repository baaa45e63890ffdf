#include "services/gateway/http/http_done.h"

#include <gtest/gtest.h>

#include "common/metrics/names.h"

namespace tessera::gateway::http {
namespace {

class HttpDoneTest : public ::testing::Test {
 protected:
  void Tell(int status, absl::string_view route = "chat", bool entered = false) {
    HttpDone done;
    done.route = route;
    done.status = status;
    done.entered = entered;
    tell_(done);
  }
  double Requests(const char* code) {
    return all_.GetCounter(metrics::kGatewayRequests, {"Generate", code, "false"}).value();
  }
  double Rejected(const char* reason) {
    return all_.GetCounter(metrics::kGatewayRejectedRequests, {reason}).value();
  }

  metrics::Metrics all_{"m"};
  GatewayMetrics metrics_{all_};
  const std::function<void(const HttpDone&)> tell_ = TellRefusals(metrics_, nullptr);
};

TEST_F(HttpDoneTest, ARefusalIsCountedAsOverGrpc) {
  for (const int status : {401, 408, 413, 415, 429, 503}) Tell(status);
  EXPECT_EQ(Requests("UNAUTHENTICATED"), 1);
  EXPECT_EQ(Requests("DEADLINE_EXCEEDED"), 1);
  EXPECT_EQ(Requests("INVALID_ARGUMENT"), 2);
  EXPECT_EQ(Requests("RESOURCE_EXHAUSTED"), 1);
  EXPECT_EQ(Requests("UNAVAILABLE"), 1);
  EXPECT_EQ(Rejected("deadline"), 1);
  EXPECT_EQ(Rejected("too_large"), 1);
  EXPECT_EQ(Rejected("quota"), 1);
  EXPECT_EQ(Rejected("queue_full"), 1);
}

TEST_F(HttpDoneTest, WhatIsCountedElsewhereOrIsNoRequestIsNot) {
  Tell(200);
  Tell(404, "unknown");
  Tell(401, "models");
  Tell(503, "chat", true);
  for (const char* code : {"OK", "NOT_FOUND", "UNAUTHENTICATED", "UNAVAILABLE"}) {
    EXPECT_EQ(Requests(code), 0) << code;
  }
}

}  // namespace
}  // namespace tessera::gateway::http
