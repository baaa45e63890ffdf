#include "services/gateway/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "tests/services/gateway/http/http_fixture.h"

namespace tessera::gateway::http {
namespace {

using ::testing::AnyOf;
using testing::Ask;
using testing::Await;
using testing::ChatPost;
using ::testing::HasSubstr;
using testing::HttpGateway;
using testing::HttpReply;
using ::testing::Not;
using testing::Question;
using testing::RawClient;
using ::testing::StartsWith;

base::Json Parse(const std::string& text) {
  absl::StatusOr<base::Json> json = base::ParseJson(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *std::move(json) : base::Json();
}

base::Json ErrorOf(const HttpReply& reply) {
  base::Json error = Parse(reply.body)["error"];
  for (const char* key : {"message", "type", "param", "code"}) {
    EXPECT_TRUE(error.contains(key)) << reply.body;
  }
  return error;
}

// The events of a stream, without "data: ".
std::vector<std::string> EventsOf(const std::string& body) {
  std::vector<std::string> events = absl::StrSplit(body, "\n\n");
  EXPECT_EQ(events.back(), "") << "the last event has no end";
  events.pop_back();
  for (std::string& event : events) {
    EXPECT_THAT(event, StartsWith("data: "));
    event.erase(0, 6);
  }
  return events;
}

constexpr char kStream[] = R"(,"stream":true)";

void AnswerHello(testing::StubDecode::Stream& stream) {
  stream.Piece("Hello");
  stream.Piece(" you");
  stream.End(absl::OkStatus(), 2);
}

TEST(HttpServerTest, AnAnswerIsOneJson) {
  HttpGateway gateway;
  gateway.decode.at_once = AnswerHello;
  gateway.Start();
  const HttpReply reply = gateway.Send(Ask());
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.Header("content-type"), "application/json");
  EXPECT_EQ(reply.Header("connection"), "keep-alive");
  const base::Json json = Parse(reply.body);
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "Hello you");
  EXPECT_EQ(json["usage"]["completion_tokens"], 2);
  Await([&] { return gateway.admission->inflight() == 0; });
}

TEST(HttpServerTest, AStreamEndsWithItsFinishReasonAndDone) {
  HttpGateway gateway;
  gateway.decode.at_once = AnswerHello;
  gateway.Start();
  RawClient client(gateway.port());
  for (int round = 0; round < 3; ++round) {  // on one connection
    client.Send(Ask(R"(,"stream":true,"stream_options":{"include_usage":true})"));
    const HttpReply reply = client.Read();
    EXPECT_EQ(reply.status, 200);
    EXPECT_TRUE(reply.chunked);
    EXPECT_EQ(reply.Header("content-type"), "text/event-stream; charset=utf-8");
    const std::vector<std::string> events = EventsOf(reply.body);
    ASSERT_GE(events.size(), 5u) << reply.body;
    EXPECT_EQ(Parse(events[0])["choices"][0]["delta"]["role"], "assistant");
    std::string text;
    for (size_t i = 1; i + 3 < events.size(); ++i) {
      text += Parse(events[i])["choices"][0]["delta"]["content"].get<std::string>();
    }
    EXPECT_EQ(text, "Hello you");
    EXPECT_EQ(Parse(events[events.size() - 3])["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(Parse(events[events.size() - 2])["usage"]["prompt_tokens"], 20);
    EXPECT_EQ(events.back(), "[DONE]");
  }
}

TEST(HttpServerTest, PiecesGoOutAsTheyCome) {
  HttpGateway gateway;
  gateway.Start();
  RawClient client(gateway.port());
  client.Send(Ask(kStream));
  const auto stream = gateway.decode.Await(0);
  for (const char* text : {"one", "two", "three"}) {
    EXPECT_TRUE(stream->Piece(text));
    Await([&] { return client.ReadSome() && absl::StrContains(client.unread(), text); });
  }
  stream->End();
  EXPECT_EQ(EventsOf(client.Read().body).back(), "[DONE]");
}

TEST(HttpServerTest, AnErrorBeforeTheFirstPieceIsAStatus) {
  HttpGateway gateway;
  gateway.decode.at_once = [](auto& stream) {
    stream.End(base::WithRetry(
        base::Error(absl::StatusCode::kUnavailable, "DECODE_DOWN", "nobody decodes"),
        absl::Milliseconds(1500)));
  };
  gateway.Start();
  const HttpReply reply = gateway.Send(Ask(kStream));
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.Header("retry-after"), "2");
  EXPECT_EQ(ErrorOf(reply)["type"], "unavailable_error");
  EXPECT_EQ(ErrorOf(reply)["code"], "decode_down");
}

TEST(HttpServerTest, AnErrorInTheMidstOfAStreamIsItsLastEvent) {
  HttpGateway gateway;
  gateway.decode.at_once = [](auto& stream) {
    stream.Piece("Hel");
    stream.End(absl::InternalError("a secret of ours"));
  };
  gateway.Start();
  RawClient client(gateway.port());
  client.Send(Ask(kStream));
  HttpReply reply = client.Read();
  // The error may have come before the piece was taken: then it is a status.
  if (reply.status == 200) {
    const std::vector<std::string> events = EventsOf(reply.body);
    EXPECT_EQ(Parse(events.back())["error"]["type"], "server_error");
  } else {
    EXPECT_EQ(reply.status, 500);
  }
  EXPECT_THAT(reply.body, Not(HasSubstr("secret")));
}

TEST(HttpServerTest, AStreamThatFailsLateHasNoDone) {
  HttpGateway gateway;
  gateway.Start();
  RawClient client(gateway.port());
  client.Send(Ask(kStream));
  const auto stream = gateway.decode.Await(0);
  stream->Piece("Hel");
  Await([&] { return client.ReadSome() && absl::StrContains(client.unread(), "Hel"); });
  stream->End(base::Error(absl::StatusCode::kUnavailable, "REPLICA_LOST", "gone"));
  const HttpReply reply = client.Read();
  const std::vector<std::string> events = EventsOf(reply.body);
  EXPECT_EQ(Parse(events.back())["error"]["code"], "replica_lost");
  EXPECT_THAT(reply.body, Not(HasSubstr("[DONE]")));
}

TEST(HttpServerTest, RequestsThatComeEarlyAreAnsweredInTheirOrder) {
  HttpGateway gateway;
  gateway.Start();
  RawClient client(gateway.port());
  client.Send(Ask() + Ask(kStream) + "GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
  gateway.decode.Await(0)->Piece("first");
  EXPECT_EQ(gateway.decode.calls(), 1u);
  gateway.decode.Await(0)->End();
  EXPECT_THAT(client.Read().body, HasSubstr("first"));
  gateway.decode.Await(1)->Piece("second");
  gateway.decode.Await(1)->End();
  EXPECT_THAT(client.Read().body, HasSubstr("second"));
  EXPECT_EQ(Parse(client.Read().body)["version"], "1.2.3");
}

TEST(HttpServerTest, AFloodOfEarlyRequestsEndsTheConnection) {
  HttpGateway gateway;
  gateway.Start();
  RawClient client(gateway.port());
  client.Send(Ask());
  const auto stream = gateway.decode.Await(0);
  for (int i = 0; i < 40; ++i) client.Send(std::string(8 << 10, 'x'));
  stream->End();
  const std::string all = client.ReadAll();
  EXPECT_THAT(all, StartsWith("HTTP/1.1 200"));
}

TEST(HttpServerTest, AClientThatGoesEndsItsAnswerWhileNothingIsWritten) {
  HttpGateway gateway;
  gateway.Start();
  for (size_t round = 0; round < 4; ++round) {
    RawClient client(gateway.port());
    client.Send(Ask(round % 2 == 0 ? "" : kStream));
    const auto stream = gateway.decode.Await(round);
    client.Close();
    Await([&] { return stream->cancelled(); });
  }
  Await([&] { return gateway.admission->inflight() == 0 && gateway.server->connections() == 0; });
}

TEST(HttpServerTest, AllPlacesTakenIsTooManyRequests) {
  HttpGateway gateway;
  gateway.limits.max_requests = 1;
  gateway.Start();
  RawClient first(gateway.port());
  first.Send(Ask());
  const auto stream = gateway.decode.Await(0);
  const HttpReply refused = gateway.Send(Ask());
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.Header("retry-after"), "1");
  EXPECT_EQ(ErrorOf(refused)["type"], "rate_limit_error");
  stream->End();
  EXPECT_EQ(first.Read().status, 200);
  gateway.decode.at_once = AnswerHello;
  EXPECT_EQ(gateway.Send(Ask()).status, 200);  // the place is free before its answer is read
}

TEST(HttpServerTest, RequestIdsAreKeptOrMade) {
  HttpGateway gateway;
  gateway.decode.at_once = AnswerHello;
  gateway.Start();
  const std::string body = Question();
  EXPECT_EQ(gateway.Send(ChatPost(body, "X-Request-Id: abc-7\r\n")).Header("x-request-id"),
            "abc-7");
  EXPECT_EQ(gateway.Send(ChatPost("{", "x-request-id: abc-8\r\n")).Header("x-request-id"), "abc-8");
  for (const char* bad : {"", "x-request-id: a b\r\n", "x-request-id: \xff\r\n"}) {
    EXPECT_EQ(gateway.Send(ChatPost(body, bad)).Header("x-request-id").size(), 32u) << bad;
  }
  EXPECT_EQ(gateway.Send("nonsense\r\n\r\n").Header("x-request-id").size(), 32u);
}

TEST(HttpServerTest, PagesAndMethods) {
  HttpGateway gateway;
  absl::Status health;
  gateway.health = [&health] { return health; };
  gateway.Start();
  RawClient client(gateway.port());
  const auto ask = [&client](const std::string& line) {
    client.Send(line + " HTTP/1.1\r\nHost: x\r\n\r\n");
    return client.Read();
  };
  EXPECT_EQ(Parse(ask("GET /v1/models").body)["data"][0]["id"], "m");
  EXPECT_EQ(Parse(ask("GET /v1/models/m?x=1").body)["id"], "m");
  EXPECT_EQ(ErrorOf(ask("GET /v1/models/other"))["code"], "model_not_found");
  EXPECT_EQ(Parse(ask("GET /version").body)["version"], "1.2.3");
  EXPECT_EQ(ask("GET /health").status, 200);
  EXPECT_EQ(ask("GET /metrics").status, 404);
  // A whole URL, as proxies' clients send it.
  EXPECT_EQ(ask("GET http://example.org/version?x").body, ask("GET /version").body);
  EXPECT_EQ(ask("GET HTTPS://example.org/v1/models/m").body, ask("GET /v1/models/m").body);
  EXPECT_EQ(ask("GET http://example.org").status, 404);
  EXPECT_EQ(ask("GET http://example.org?/version").status, 404);
  EXPECT_EQ(ErrorOf(ask("GET /"))["type"], "not_found_error");
  HttpReply reply = ask("GET /v1/chat/completions");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.Header("allow"), "POST, OPTIONS");
  reply = ask("DELETE /v1/models");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.Header("allow"), "GET, HEAD, OPTIONS");
  reply = ask("OPTIONS /v1/chat/completions");
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.Header("allow"), "POST, OPTIONS");
  client.Send("HEAD /version HTTP/1.1\r\nHost: x\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n");
  Await([&] { return client.ReadSome() && absl::EndsWith(client.unread(), "}"); });
  const std::vector<std::string> parts = absl::StrSplit(client.unread(), "HTTP/1.1 200 OK");
  ASSERT_EQ(parts.size(), 3u) << client.unread();
  EXPECT_THAT(parts[1], Not(HasSubstr("1.2.3")));
  EXPECT_THAT(parts[1], HasSubstr("content-length: 19"));
}

TEST(HttpServerTest, AServerThatIsNotWellSaysWhy) {
  HttpGateway gateway;
  gateway.health = [] { return absl::UnavailableError("the server drains"); };
  gateway.Start();
  const HttpReply reply = gateway.Send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(ErrorOf(reply)["message"], "the server drains");
}

TEST(HttpServerTest, KeysLeadToTenants) {
  HttpGateway gateway;
  gateway.tenant = [](absl::string_view authorization) -> absl::StatusOr<std::string> {
    if (authorization == "Bearer good") return "ann";
    return base::Error(absl::StatusCode::kUnauthenticated, "KEY_INVALID", "no such key");
  };
  gateway.decode.at_once = AnswerHello;
  gateway.Start();
  const HttpReply refused = gateway.Send(Ask());
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.Header("www-authenticate"), "Bearer");
  EXPECT_EQ(ErrorOf(refused)["type"], "authentication_error");
  EXPECT_EQ(gateway.Send("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n").status, 401);
  EXPECT_EQ(gateway.Send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
  EXPECT_EQ(gateway.Send(ChatPost(Question(), "Authorization: Bearer good\r\n")).status, 200);
  EXPECT_EQ(gateway.decode.Await(0)->start().tenant(), "ann");
}

TEST(HttpServerTest, OldClientsReadAStreamToTheEndOfTheConnection) {
  HttpGateway gateway;
  gateway.decode.at_once = AnswerHello;
  gateway.Start();
  RawClient client(gateway.port());
  const std::string body = Question("What?", kStream);
  client.Send(absl::StrCat("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: ", body.size(),
                           "\r\n\r\n", body));
  const std::string all = client.ReadAll();
  EXPECT_THAT(all, HasSubstr("connection: close"));
  EXPECT_THAT(all, Not(HasSubstr("transfer-encoding")));
  EXPECT_TRUE(absl::EndsWith(all, "data: [DONE]\n\n")) << all;
}

constexpr char kTraceparent[] =
    "traceparent: 00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01\r\n";

TEST(HttpServerTest, WhatWasDoneIsTold) {
  HttpGateway gateway;
  base::Mutex mutex;
  std::vector<std::string> told;
  gateway.done = [&](const HttpDone& done) {
    base::MutexLock lock(mutex);
    told.push_back(absl::StrCat(done.route, " ", done.status, " ", done.stream, " ", done.entered,
                                " ", done.request_id.empty(), " ",
                                base::ToHex(done.trace.parent_id)));
    EXPECT_EQ(done.trace.trace_id.size(), 16u);
    EXPECT_GE(done.end, done.arrival);
  };
  gateway.Start();
  {
    RawClient client(gateway.port());
    client.Send(ChatPost(Question("What?", kStream), kTraceparent));
    gateway.decode.Await(0)->End();
    EXPECT_EQ(client.Read().status, 200);
    client.Send(Ask(kStream));
    gateway.decode.Await(1);
  }
  gateway.Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  gateway.Send(ChatPost(Question("What?"), "Content-Type: text/plain\r\n"));
  Await([&] {
    base::MutexLock lock(mutex);
    return told.size() == 4;
  });
  base::MutexLock lock(mutex);
  EXPECT_THAT(told,
              ::testing::UnorderedElementsAre("chat 200 1 1 0 0102030405060708", "chat 499 1 1 0 ",
                                              "unknown 404 0 0 0 ", "chat 415 0 0 0 "));
}

TEST(HttpServerTest, ShutdownLetsRunningAnswersEnd) {
  HttpGateway gateway;
  gateway.Start();
  RawClient idle(gateway.port()), busy(gateway.port());
  idle.Send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(idle.Read().status, 200);
  busy.Send(Ask(kStream));
  const auto stream = gateway.decode.Await(0);
  std::thread ending([&] { gateway.server->Shutdown(absl::Minutes(5)); });
  EXPECT_EQ(idle.ReadAll(), "");
  stream->Piece("still here");
  stream->End();
  const HttpReply reply = busy.Read();
  EXPECT_EQ(EventsOf(reply.body).back(), "[DONE]");
  EXPECT_EQ(reply.Header("connection"), "close");
  ending.join();
  EXPECT_EQ(RawClient(gateway.port()).fd(), -1);
}

TEST(HttpServerTest, ShutdownCancelsWhatOutlivesItsGrace) {
  HttpGateway gateway;
  gateway.Start();
  RawClient client(gateway.port());
  client.Send(Ask());
  const auto stream = gateway.decode.Await(0);
  gateway.server->Shutdown(absl::ZeroDuration());
  EXPECT_TRUE(stream->cancelled());
  EXPECT_EQ(gateway.admission->inflight(), 0);
  EXPECT_EQ(client.ReadAll(), "");
}

TEST(HttpServerTest, ClientsAreToldHowLongAConnectionIsKept) {
  HttpGateway gateway;
  gateway.Start();
  RawClient client(gateway.port());
  client.Send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.Read().Header("keep-alive"), "timeout=120");
  client.Send("GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.Read().Header("keep-alive"), "");
}

TEST(HttpServerTest, BeforeTheEndAnswersEndTheirConnectionsAndOthersStay) {
  constexpr char kGet[] = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n";
  HttpGateway gateway;
  gateway.Start();
  RawClient kept(gateway.port()), idle(gateway.port());
  for (RawClient* client : {&kept, &idle}) {
    client->Send(kGet);
    EXPECT_EQ(client->Read().Header("connection"), "keep-alive");
  }
  gateway.server->AnnounceEnd();
  RawClient late(gateway.port());
  for (RawClient* client : {&kept, &late, &idle}) {
    client->Send(kGet);
    const HttpReply reply = client->Read();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.Header("connection"), "close");
    EXPECT_EQ(client->ReadAll(), "");
  }
}

// A client that keeps its connection as long as it may: it looks whether it was closed, and sends.
class PooledClient {
 public:
  explicit PooledClient(const std::atomic<int>& port) : port_(port) {}

  // Whether a request was answered, and by which port.
  std::pair<bool, int> Ask() {
    pollfd ended = {connection_ ? connection_->fd() : -1, POLLIN, 0};
    if (connection_ && poll(&ended, 1, 0) != 0) connection_.reset();
    if (!connection_) {
      connected_to_ = port_;
      connection_ = std::make_unique<RawClient>(connected_to_);
    }
    connection_->Send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
    const HttpReply reply = connection_->Read();
    if (reply.Header("connection") != "keep-alive") connection_.reset();
    return {reply.status == 200, connected_to_};
  }

 private:
  const std::atomic<int>& port_;
  std::unique_ptr<RawClient> connection_;
  int connected_to_ = 0;
};

// One server after another takes over. Clients come at any moment of that.
TEST(HttpServerTest, PooledClientsLoseNothingThroughTwentyRestarts) {
  constexpr int kClients = 8, kRestarts = 20;
  std::atomic<int> port = 0, lost = 0, answered = 0;
  std::array<std::atomic<int>, kClients> seen = {};  // the port that has answered it last
  std::atomic<bool> stop = false;
  auto serving = std::make_unique<HttpGateway>();
  serving->Start();
  port = serving->port();
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<uint32_t>(i));
      PooledClient client(port);
      while (!stop) {
        const auto [ok, from] = client.Ask();
        ++(ok ? answered : lost);
        seen[static_cast<size_t>(i)] = from;
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      }
    });
  }
  for (int restart = 0; restart < kRestarts; ++restart) {
    auto next = std::make_unique<HttpGateway>();
    next->Start();
    port = next->port();
    serving->server->AnnounceEnd();
    // As a drain's delay: long enough for each to ask once more.
    Await([&] {
      return std::all_of(seen.begin(), seen.end(), [&](const auto& last) { return last == port; });
    });
    serving->server->Shutdown(absl::Minutes(5));
    serving = std::move(next);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost, 0);
  EXPECT_GT(answered, kClients * kRestarts);
}

}  // namespace
}  // namespace tessera::gateway::http
