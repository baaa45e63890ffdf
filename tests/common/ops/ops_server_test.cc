#include "common/ops/ops_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/metrics/metrics.h"
#include "common/metrics/names.h"
#include "tests/common/ops/raw_client.h"

namespace tessera::ops {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kGetHealth[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

class OpsServerTest : public ::testing::Test {
 protected:
  void Start() {
    options_.address = "127.0.0.1:0";
    handlers_.metrics = [this] { return metrics_.Text(); };
    auto server = OpsServer::Start(options_, handlers_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = server_->port();
  }
  void ExpectAlive() { EXPECT_THAT(Get(port_, "/healthz"), EndsWith("\r\n\r\nok\n")); }

  metrics::Metrics metrics_{"shelf"};
  OpsOptions options_;
  Handlers handlers_;
  std::unique_ptr<OpsServer> server_;
  int port_ = 0;
};

TEST_F(OpsServerTest, AnswersItsPages) {
  metrics_.GetGauge(metrics::kDraining).Set(1);
  handlers_.readiness = {{"model", [] { return absl::UnavailableError("loading"); }}};
  Start();
  EXPECT_GT(port_, 0);
  const std::string metrics = Get(port_, "/metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(metrics, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(metrics, HasSubstr("tessera_draining{model_name=\"shelf\"} 1\n"));
  EXPECT_THAT(Get(port_, "/readyz"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(Get(port_, "/readyz"), EndsWith("model: loading\n"));
  EXPECT_THAT(Get(port_, "/debug/state"), EndsWith("{}\n"));
  EXPECT_THAT(Get(port_, "/debug/state"), HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(Get(port_, "/nothing"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  ExpectAlive();
}

TEST_F(OpsServerTest, HeadIsGetWithoutTheBody) {
  Start();
  for (const char* path : {"/healthz", "/metrics", "/nothing"}) {
    const std::string get = Get(port_, path);
    const std::string head = Ask(port_, absl::StrCat("HEAD ", path, " HTTP/1.1\r\n\r\n"));
    EXPECT_EQ(head, get.substr(0, get.find("\r\n\r\n") + 4));
  }
}

TEST_F(OpsServerTest, AConnectionIsKeptWhereTheClientWantsIt) {
  Start();
  RawClient client(port_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send(kGetHealth));
    EXPECT_THAT(client.ReadAnswer(), EndsWith("\r\n\r\nok\n"));
  }
  ASSERT_TRUE(client.Send("HEAD /healthz HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(client.ReadAnswer(/*head_only=*/true), HasSubstr("Content-Length: 3\r\n"));
  // Sent together, answered in order.
  ASSERT_TRUE(client.Send(absl::StrCat(kGetHealth, "GET /x HTTP/1.1\r\n\r\n", kGetHealth)));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  ASSERT_TRUE(client.Send("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(client.ReadAll(), EndsWith("ok\n"));
  RawClient old(port_);
  ASSERT_TRUE(old.Send("GET /healthz HTTP/1.0\r\n\r\n"));
  EXPECT_THAT(old.ReadAll(), EndsWith("ok\n"));
}

TEST_F(OpsServerTest, WhoReadsNoPageHasFewMadeForHim) {
  std::atomic<int> pages{0};
  const std::string page(256 << 10, '#');
  handlers_.state = {{"page", [&]() -> base::Json {
                        ++pages;
                        return page;
                      }}};
  Start();
  RawClient client(port_);
  std::string many;
  for (int i = 0; i < 100; ++i) many += "GET /debug/state HTTP/1.1\r\n\r\n";
  ASSERT_TRUE(client.Send(many));
  for (int before = -1; before != pages;) {  // until no more are made
    before = pages;
    for (int i = 0; i < 20; ++i) ExpectAlive();
  }
  EXPECT_GE(pages, 1);
  EXPECT_LE(pages, 8);  // of 26 MB in all, 2 MB
  server_.reset();      // it uses what stands above
}

TEST_F(OpsServerTest, OtherMethodsAreRefused) {
  Start();
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "FETCH"}) {
    const std::string answer =
        Ask(port_, absl::StrCat(method, " /healthz HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n"));
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  }
  ExpectAlive();
}

TEST_F(OpsServerTest, BadRequestsAreToldAndClosed) {
  Start();
  const std::string zeros(100, '\0');
  for (const std::string& request :
       {std::string("hello\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string("GET /healthz\r\n\r\n"), std::string("GET /healthz HTTP/9.9\r\n\r\n"),
        std::string("GET / healthz HTTP/1.1\r\n\r\n"),
        std::string("GET /healthz HTTP/1.1\r\nno colon\r\n\r\n"), zeros + "\r\n\r\n",
        std::string("GET /healthz HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
        std::string("GET /healthz HTTP/1.1\r\nContent-Length: -3\r\n\r\n"),
        std::string("GET /healthz HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        std::string(
            "GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + zeros}) {
    const std::string answer = Ask(port_, request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 Bad Request\r\n")) << request;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(answer, Not(HasSubstr("ok\n")));
  }
  ExpectAlive();
}

TEST_F(OpsServerTest, LongHeadsAreRefused) {
  Start();
  const std::string line = absl::StrCat("X: ", std::string(1000, 'x'), "\r\n");
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += line;
  for (const std::string& request :
       {absl::StrCat("GET /healthz HTTP/1.1\r\n", lines, "\r\n"),
        absl::StrCat("GET /", std::string(20'000, 'x'), " HTTP/1.1\r\n\r\n"),
        // Never ends: what is sent behind the refusal is thrown away.
        absl::StrCat("GET /healthz HTTP/1.1\r\nX: ", std::string(500'000, 'x'))}) {
    EXPECT_THAT(Ask(port_, request), StartsWith("HTTP/1.1 431"));
  }
  ExpectAlive();
}

TEST_F(OpsServerTest, AClientThatGoesInMidRequestIsForgotten) {
  Start();
  for (const char* request : {"", "G", "GET /heal", "GET /healthz HTTP/1.1\r\n"}) {
    EXPECT_EQ(Ask(port_, request), "") << request;
  }
  ExpectAlive();
}

TEST_F(OpsServerTest, ARequestThatTakesTooLongIsClosed) {
  options_.timeout = absl::Milliseconds(50);
  Start();
  RawClient silent(port_);
  EXPECT_EQ(silent.ReadAll(), "");
  RawClient half(port_);
  ASSERT_TRUE(half.Send("GET /healthz HT"));
  EXPECT_EQ(half.ReadAll(), "");
  // Byte by byte: each comes in time, the request does not.
  RawClient slow(port_);
  ASSERT_TRUE(slow.Send("GET /healthz HTTP/1.1\r\nX: "));
  for (int i = 0; i < 8000 && !slow.HasEnded(); ++i) {
    slow.Send("x");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(slow.HasEnded());
  // Kept, then silent.
  RawClient kept(port_);
  if (kept.Send(kGetHealth)) kept.ReadAnswer();
  EXPECT_EQ(kept.ReadAll(), "");
}

TEST_F(OpsServerTest, AClientThatDoesNotReadHoldsNobodyUp) {
  handlers_.state = {{"large", [] { return base::Json(std::string(64 << 20, 'x')); }}};
  Start();
  RawClient deaf(port_);
  ASSERT_TRUE(deaf.Send("GET /debug/state HTTP/1.1\r\n\r\n"));
  ExpectAlive();
}

TEST_F(OpsServerTest, TheNewestOfTooManyConnectionsIsAnswered) {
  options_.max_connections = 8;
  options_.timeout = absl::Hours(1);
  Start();
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 100; ++i) idle.push_back(std::make_unique<RawClient>(port_));
  // One that asks is not the most silent.
  RawClient busy(port_);
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(busy.Send(kGetHealth));
    ASSERT_THAT(busy.ReadAnswer(), EndsWith("ok\n"));
    idle.push_back(std::make_unique<RawClient>(port_));
    ExpectAlive();
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(idle[i]->ReadAll(), "");  // all of these were closed
}

TEST_F(OpsServerTest, ScrapesWhileSeriesAreMade) {
  Start();
  std::atomic<bool> done{false};
  std::thread maker([&] {
    for (int i = 0; i < 300; ++i) {
      metrics_.GetCounter(metrics::kVisionImages, {absl::StrCat(i)}).Increment();
      metrics_.GetHistogram(metrics::kVisionStageDuration, {absl::StrCat(i)}).Observe(1);
    }
    done = true;
  });
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 3; ++i) {
    scrapers.emplace_back([&] {
      do {
        EXPECT_THAT(Get(port_, "/metrics"), StartsWith("HTTP/1.1 200"));
      } while (!done);
    });
  }
  maker.join();
  for (std::thread& scraper : scrapers) scraper.join();
  EXPECT_THAT(Get(port_, "/metrics"), HasSubstr("outcome=\"299\"} 1\n"));
}

TEST_F(OpsServerTest, EndsWithClientsOfEveryKind) {
  handlers_.state = {{"large", [] { return base::Json(std::string(8 << 20, 'x')); }}};
  Start();
  RawClient silent(port_), half(port_), deaf(port_), kept(port_);
  half.Send("GET /healthz HT");
  deaf.Send("GET /debug/state HTTP/1.1\r\n\r\n");
  kept.Send(kGetHealth);
  kept.ReadAnswer();
  server_.reset();
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(kept.ReadAll(), "");
}

TEST_F(OpsServerTest, ATakenPortIsAnErrorAndAFreedOneIsNot) {
  Start();
  options_.address = absl::StrCat("127.0.0.1:", port_);
  const absl::Status taken = OpsServer::Start(options_, handlers_).status();
  EXPECT_EQ(base::ReasonOf(taken), "ADDRESS_UNAVAILABLE");
  EXPECT_THAT(std::string(taken.message()), HasSubstr(options_.address));
  EXPECT_THAT(std::string(taken.message()), HasSubstr("in use"));
  ExpectAlive();
  server_.reset();  // ends connections first, so that they linger
  EXPECT_TRUE(OpsServer::Start(options_, handlers_).ok());
}

TEST_F(OpsServerTest, WhatIsNoAddressIsRefused) {
  for (const char* address : {"", ":", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
                              "127.0.0.1:-1", "127.0.0.1:65536"}) {
    options_.address = address;
    EXPECT_EQ(base::ReasonOf(OpsServer::Start(options_, handlers_).status()), "BAD_OPTION")
        << address;
  }
  options_.address = "192.0.2.1:0";  // of documentation only: not of this machine
  EXPECT_EQ(base::ReasonOf(OpsServer::Start(options_, handlers_).status()), "ADDRESS_UNAVAILABLE");
  options_.address = "localhost:0";
  EXPECT_TRUE(OpsServer::Start(options_, handlers_).ok());
}

}  // namespace
}  // namespace tessera::ops
