// Clients that are broken or mean no good, against the port.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/api_keys.h"
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
using testing::Question;
using testing::RawClient;
using ::testing::StartsWith;

void AnswerAtOnce(testing::StubDecode::Stream& stream) {
  stream.Piece("ok");
  stream.End();
}

constexpr char kPost[] = "POST /v1/chat/completions HTTP/1.1\r\n";
constexpr char kVersion[] = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n";

struct BadRequest {
  const char* name;
  std::string bytes;
  int status;
};

std::vector<BadRequest> BadRequests() {
  const std::string post = kPost, host = "Host: x\r\n";
  return {
      {"nonsense", "hello\r\n\r\n", 400},
      {"TLS", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15), 400},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"HTTP/3.7", "GET /version HTTP/3.7\r\n\r\n", 505},
      {"control in target", "GET /ver\x01sion HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"no host", post + "Content-Length: 0\r\n\r\n", 400},
      {"two hosts", post + host + "Host: y\r\nContent-Length: 0\r\n\r\n", 400},
      {"header without colon", post + host + "Content-Length 3\r\n\r\nabc", 400},
      {"space before colon", post + host + "Content-Length : 3\r\n\r\nabc", 400},
      {"NUL in header", post + host + std::string("X: a\0b\r\n\r\n", 10), 400},
      {"negative length", post + host + "Content-Length: -1\r\n\r\n", 400},
      {"signed length", post + host + "Content-Length: +5\r\n\r\nhello", 400},
      {"hex length", post + host + "Content-Length: 0x5\r\n\r\nhello", 400},
      {"length beyond 64 bits", post + host + "Content-Length: 99999999999999999999\r\n\r\n", 400},
      {"two lengths", post + host + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
      {"list of lengths", post + host + "Content-Length: 5, 6\r\n\r\nhello", 400},
      {"length and chunked",
       post + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"chunked and length",
       post + host + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
      {"unknown coding", post + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
      {"gzip, chunked", post + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {"chunked, gzip", post + host + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400},
      {"two codings",
       post + host + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"chunked in HTTP/1.0",
       "POST /v1/chat/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"chunk without size", post + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n",
       400},
      {"chunk of negative size",
       post + host + "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n", 400},
      {"chunk beyond 64 bits",
       post + host + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400},
      {"chunk longer than its size",
       post + host + "Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n", 400},
      {"endless chunk extension",
       post + host + "Transfer-Encoding: chunked\r\n\r\n5;" + std::string(200'000, 'x'), 400},
      {"headers too long", post + host + "X: " + std::string(20'000, 'x') + "\r\n\r\n", 431},
      {"target too long", "GET /" + std::string(20'000, 'x') + " HTTP/1.1\r\n" + host + "\r\n",
       431},
      {"headers without end", post + host + std::string(20'000, 'x'), 431},
      {"body of a page", "GET /version HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 400},
      {"form", post + host + "Content-Type: application/x-www-form-urlencoded\r\n\r\n", 415},
      {"plain text", post + host + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415},
      {"a page without a type", post + host + "Origin: null\r\nContent-Length: 2\r\n\r\n{}", 415},
      {"a page without an origin",
       post + host + "sec-fetch-mode: no-cors\r\nContent-Length: 2\r\n\r\n{}", 415},
      {"a page with an empty type",
       post + host + "Origin: http://a.example\r\nContent-Type: \r\nContent-Length: 2\r\n\r\n{}",
       415},
      {"odd Expect", post + host + "Expect: the-moon\r\nContent-Length: 2\r\n\r\n{}", 417},
      {"no body", post + host + "\r\n", 400},
      {"too long", post + host + "Content-Length: 34000000\r\n\r\n{", 413},
      {"too long, chunked", post + host + "Transfer-Encoding: chunked\r\n\r\n2000001\r\n", 413},
  };
}

TEST(HttpAbuseTest, BadRequestsAreRefusedAndTheServerLives) {
  HttpGateway gateway;
  gateway.decode.at_once = AnswerAtOnce;
  gateway.Start();
  for (const BadRequest& bad : BadRequests()) {
    RawClient client(gateway.port());
    client.Send(bad.bytes);
    const HttpReply reply = client.Read();
    EXPECT_EQ(reply.status, bad.status) << bad.name << ": " << reply.head << reply.body;
    EXPECT_THAT(reply.body, StartsWith("{\"error\":{\"message\":")) << bad.name;
    EXPECT_EQ(gateway.Send(Ask()).status, 200) << "after " << bad.name;
  }
}

// Its browser has asked for leave before: this server gives none to other origins.
TEST(HttpAbuseTest, APageThatSendsJsonIsAnswered) {
  HttpGateway gateway;
  gateway.decode.at_once = AnswerAtOnce;
  gateway.Start();
  const std::string page = "Origin: http://x\r\nSec-Fetch-Mode: cors\r\n";
  EXPECT_EQ(gateway.Send(ChatPost(Question(), page)).status, 415);
  EXPECT_EQ(gateway.Send(ChatPost(Question(), page + "Content-Type: application/json\r\n")).status,
            200);
}

// The smuggled request must never be answered: the connection ends with the refusal.
TEST(HttpAbuseTest, WhatFollowsADoubtfulBodyIsNoRequest) {
  HttpGateway gateway;
  gateway.Start();
  const std::string smuggled = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const std::string& head :
       {absl::StrCat(kPost, "Host: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
        absl::StrCat(kPost, "Host: x\r\nTransfer-Encoding: gzip\r\n\r\n"),
        absl::StrCat(kPost, "Host: x\r\nTransfer-Encoding: xchunked\r\n\r\n"),
        absl::StrCat(kPost, "Host: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n"),
        absl::StrCat(kPost, "Host: x\r\nHost: y\r\nContent-Length: 0\r\n\r\n"),
        absl::StrCat(kPost, "Host: x\r\nContent-Type: text/plain\r\nContent-Length: 99\r\n\r\n")}) {
    RawClient client(gateway.port());
    client.Send(head + "0\r\n\r\n" + smuggled);
    const std::string all = client.ReadAll();
    EXPECT_THAT(all, HasSubstr("connection: close"));
    EXPECT_EQ(all.find("1.2.3"), all.npos) << head;
  }
}

TEST(HttpAbuseTest, EveryCutOfARequestIsForgotten) {
  HttpGateway gateway;
  gateway.decode.at_once = AnswerAtOnce;
  gateway.Start();
  const std::string whole = Ask();
  for (size_t bytes = 0; bytes < whole.size(); bytes += 7) {
    RawClient client(gateway.port());
    client.Send(whole.substr(0, bytes));
  }
  Await([&] { return gateway.server->connections() == 0; });
  EXPECT_EQ(gateway.decode.calls(), 0u);
  EXPECT_EQ(gateway.Send(whole).status, 200);
}

TEST(HttpAbuseTest, ARequestByteByByteIsARequest) {
  HttpGateway gateway;
  gateway.decode.at_once = AnswerAtOnce;
  gateway.Start();
  const std::string body = Question();
  std::string chunked = absl::StrCat(kPost, "Host: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char c : body) absl::StrAppend(&chunked, "1;ext=\"x\"\r\n", std::string(1, c), "\r\n");
  for (const std::string& request : {Ask(), chunked + "0\r\nTrailer: x\r\n\r\n"}) {
    RawClient client(gateway.port());
    for (const char c : request) client.Send(std::string(1, c));
    EXPECT_EQ(client.Read().status, 200) << request;
  }
}

TEST(HttpAbuseTest, ALargeBodyIsReadAndARefusedOneIsNot) {
  HttpGateway gateway;
  gateway.decode.at_once = AnswerAtOnce;
  gateway.Start();
  const std::string padded =
      Question("What?", absl::StrCat(R"(,"pad":")", std::string(1 << 20, 'x'), R"(")"));
  RawClient client(gateway.port());
  client.Send(absl::StrCat(
      kPost, "Host: x\r\nExpect: 100-continue\r\nContent-Length: ", padded.size(), "\r\n\r\n"));
  EXPECT_EQ(client.Read().status, 100);
  client.Send(padded);
  EXPECT_EQ(client.Read().status, 200);
  client.Send(
      absl::StrCat(kPost, "Host: x\r\nExpect: 100-continue\r\nContent-Length: 34000000\r\n\r\n"));
  EXPECT_EQ(client.Read().status, 413);  // and no 100
}

TEST(HttpAbuseTest, AllOfAHugeBodyMayComeBeforeItsRefusalIsRead) {
  HttpGateway gateway;
  gateway.http.linger_timeout = absl::Minutes(5);
  gateway.Start();
  RawClient client(gateway.port());
  client.Send(ChatPost(std::string(34'000'000, 'x')));
  EXPECT_EQ(client.Read().status, 413);
}

TEST(HttpAbuseTest, BodiesTogetherHaveABudget) {
  HttpGateway gateway;
  gateway.options.max_image_bytes = 1000;
  gateway.options.max_message_bytes = 100'000;
  gateway.http.max_bodies_bytes = 100'000;
  gateway.decode.at_once = AnswerAtOnce;
  gateway.Start();
  const std::string body =
      Question("What?", absl::StrCat(R"(,"pad":")", std::string(60'000, 'x'), "\""));
  const std::string request = ChatPost(body);
  std::optional<RawClient> first;
  const auto begin = [&] {
    first.emplace(gateway.port());
    first->Send(request.substr(0, request.size() - 1));
  };
  begin();
  // Until most of the first has come, the second is read, and may have the first refused.
  int status = 200;
  Await([&] {
    if (!first->ReadSome() || !first->unread().empty()) begin();
    return (status = gateway.Send(request).status) != 200;
  });
  EXPECT_EQ(status, 503);
  first->Send(request.substr(request.size() - 1));
  EXPECT_EQ(first->Read().status, 200);
  EXPECT_EQ(gateway.Send(request).status, 200);
}

// 60 kB of body for a tenant.
std::string LargeAsk(const std::string& tenant) {
  return ChatPost(Question("What?", absl::StrCat(R"(,"pad":")", std::string(60'000, 'x'), "\"")),
                  absl::StrCat("Authorization: ", tenant, "\r\n"));
}

TEST(HttpAbuseTest, ATenantThatHoldsItsShareLeavesTheOthersTheirs) {
  HttpGateway gateway;
  const auto keys = rpc::ApiKeys::Create("", gateway.clock);
  gateway.options.api_keys = keys->get();
  gateway.options.max_image_bytes = 1000;
  gateway.options.max_message_bytes = 100'000;
  gateway.options.tenant_share = 0.5;
  gateway.http.max_bodies_bytes = 200'000;
  gateway.tenant = [](absl::string_view key) { return std::string(key); };
  gateway.Start();
  // The first is under way with its pictures, if it had any.
  RawClient first(gateway.port()), other(gateway.port()), later(gateway.port());
  first.Send(LargeAsk("ann"));
  const auto held = gateway.decode.Await(0);
  const HttpReply reply = gateway.Send(LargeAsk("ann"));
  EXPECT_EQ(reply.status, 429);
  EXPECT_THAT(reply.body, HasSubstr("quota_exceeded"));
  EXPECT_NE(reply.Header("retry-after"), "");
  other.Send(LargeAsk("bob"));
  gateway.decode.Await(1)->End();
  EXPECT_EQ(other.Read().status, 200);
  held->Piece("now they are gone");
  later.Send(LargeAsk("ann"));
  gateway.decode.Await(2)->End();
  EXPECT_EQ(later.Read().status, 200);
  held->End();
  EXPECT_EQ(first.Read().status, 200);
}

TEST(HttpAbuseTest, ATenantWhoseRequestsComeSlowlyLeavesTheOthersTheirConnections) {
  HttpGateway gateway;
  const auto keys = rpc::ApiKeys::Create("", gateway.clock);
  gateway.options.api_keys = keys->get();
  gateway.options.tenant_share = 0.5;
  gateway.http.max_connections = 4;
  gateway.tenant = [](absl::string_view key) { return std::string(key); };
  gateway.Start();
  gateway.decode.at_once = [](testing::StubDecode::Stream& stream) { stream.End(); };
  const std::string body = Question();
  const std::string head = absl::StrCat(
      kPost,
      "Host: x\r\nAuthorization: ann\r\nExpect: 100-continue\r\nContent-Length: ", body.size(),
      "\r\n\r\n");
  RawClient first(gateway.port()), second(gateway.port()), third(gateway.port());
  for (RawClient* client : {&first, &second}) {
    client->Send(head);
    EXPECT_EQ(client->Read().status, 100);
  }
  third.Send(head);
  const HttpReply reply = third.Read();
  EXPECT_EQ(reply.status, 429);
  EXPECT_THAT(reply.body, HasSubstr("quota_exceeded"));
  EXPECT_THAT(reply.body, HasSubstr("2 connections"));
  third.Close();
  RawClient other(gateway.port());
  other.Send(ChatPost(body, "Authorization: bob\r\n"));
  EXPECT_EQ(other.Read().status, 200);
  for (int i = 0; i < 3; ++i) {  // each gives its place back
    first.Send(body);
    EXPECT_EQ(first.Read().status, 200);
    first.Send(head);
    EXPECT_EQ(first.Read().status, 100);
  }
  second.Close();
}

TEST(HttpAbuseTest, SlowRequestsAreToldAndSilentConnectionsClosed) {
  HttpGateway gateway;
  gateway.http.header_timeout = absl::Milliseconds(50);
  gateway.http.body_timeout = absl::Milliseconds(50);
  gateway.http.idle_timeout = absl::Milliseconds(50);
  gateway.Start();
  RawClient silent(gateway.port());
  EXPECT_EQ(silent.ReadAll(), "");
  const auto answer_to = [&](const std::string& request) {
    std::string answer;
    do {  // a client whose first word took too long was a silent one
      RawClient client(gateway.port());
      client.Send(request);
      answer = client.ReadAll();
    } while (answer.empty());
    return answer;
  };
  EXPECT_THAT(answer_to("GET /version HTTP/1.1\r\nHos"), StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(answer_to(absl::StrCat(kPost, "Host: x\r\nContent-Length: 100\r\n\r\n{")),
              StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(answer_to(kVersion), StartsWith("HTTP/1.1 200"));
  Await([&] { return gateway.server->connections() == 0; });
}

TEST(HttpAbuseTest, AnAnswerTakesLongerThanAnyTimeoutOfItsRequest) {
  HttpGateway gateway;
  gateway.http.header_timeout = gateway.http.body_timeout = gateway.http.idle_timeout =
      absl::Milliseconds(200);
  gateway.Start();
  std::optional<RawClient> answered;
  const auto begin = [&] {
    answered.emplace(gateway.port());
    answered->Send(Ask());
  };
  begin();
  Await([&] {  // one that was sent too late is begun anew
    const bool under_way = gateway.decode.calls() > 0;
    if (!under_way && !answered->ReadSome()) begin();
    return under_way;
  });
  const auto stream = gateway.decode.Await(0);
  EXPECT_EQ(RawClient(gateway.port()).ReadAll(), "");  // by now all of them have passed
  stream->End();
  EXPECT_EQ(answered->Read().status, 200);
}

TEST(HttpAbuseTest, OneConnectionTooManyIsToldSo) {
  HttpGateway gateway;
  gateway.http.max_connections = 2;
  gateway.Start();
  RawClient one(gateway.port()), two(gateway.port());
  one.Send(Ask());
  two.Send(Ask());
  gateway.decode.Await(0);
  gateway.decode.Await(1);
  RawClient three(gateway.port());
  EXPECT_THAT(three.ReadAll(), AnyOf(HasSubstr("connections_full"), ""));
  one.Close();
  Await([&] { return gateway.server->connections() == 1; });
  EXPECT_EQ(gateway.Send(kVersion).status, 200);
}

TEST(HttpAbuseTest, IdleConnectionsMakeRoomTheLongestIdleFirst) {
  HttpGateway gateway;
  gateway.http.max_connections = 3;
  gateway.http.threads = 1;
  gateway.Start();
  RawClient asked(gateway.port()), silent(gateway.port()), begun(gateway.port());
  asked.Send(Ask());
  const auto stream = gateway.decode.Await(0);
  Await([&] { return gateway.server->connections() == 3; });
  begun.Send("GET /ver");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(gateway.Send(kVersion).status, 200) << i;
  EXPECT_EQ(silent.ReadAll(), "");
  stream->Piece("still here");
  stream->End();
  EXPECT_THAT(asked.Read().body, HasSubstr("still here"));
}

TEST(HttpAbuseTest, OfTwoKeysNeitherIsTaken) {
  HttpGateway gateway;
  gateway.tenant = [](absl::string_view) { return "ann"; };
  gateway.Start();
  const HttpReply reply =
      gateway.Send(ChatPost(Question(), "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"));
  EXPECT_EQ(reply.status, 401);
  EXPECT_THAT(reply.body, HasSubstr("more than one authorization"));
}

}  // namespace
}  // namespace tessera::gateway::http
