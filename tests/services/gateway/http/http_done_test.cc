#include "services/gateway/http/http_done.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/metrics/names.h"
#include "tests/services/gateway/http/http_fixture.h"

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
  RequestMetrics metrics_{all_};
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

TEST(HttpDoneOfServerTest, ABodyThatIsTooLongIsTold) {
  base::Mutex mutex;
  std::vector<HttpDone> told;
  testing::HttpGateway gateway;
  gateway.done = [&](const HttpDone& done) {
    base::MutexLock lock(mutex);
    told.push_back(done);
  };
  gateway.Start();
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: long\r\n";
  for (const char* size :
       {"Content-Length: 34000000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n2000001\r\n"}) {
    testing::RawClient client(gateway.port());
    client.Send(absl::StrCat(head, size));
    const testing::HttpReply reply = client.Read();
    EXPECT_EQ(reply.status, 413);
    EXPECT_EQ(reply.Header("x-request-id"), "long");
    EXPECT_EQ(reply.Header("connection"), "close");
  }
  gateway.server.reset();  // behind it, all is told
  base::MutexLock lock(mutex);
  ASSERT_EQ(told.size(), 2u);
  for (const HttpDone& done : told) {
    EXPECT_EQ(done.route, "chat");
    EXPECT_EQ(done.status, 413);
    EXPECT_EQ(done.request_id, "long");
  }
}

}  // namespace
}  // namespace tessera::gateway::http
