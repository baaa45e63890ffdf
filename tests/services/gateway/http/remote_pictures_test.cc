// Pictures from URLs, as a request over the port has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/rpc/api_keys.h"
#include "tests/services/gateway/http/http_fixture.h"
#include "tests/support/peer.h"

namespace tessera::gateway::http {
namespace {

using testing::Await;
using testing::ChatPost;
using ::testing::HasSubstr;
using testing::HttpGateway;
using testing::HttpReply;
using testing::Peer;
using testing::RawClient;

// A host of pictures; "/bad" is none.
Peer::Serve Pictures() {
  return [](int fd) {
    std::string head;
    char byte = 0;
    while (!absl::EndsWith(head, "\r\n\r\n") && recv(fd, &byte, 1, 0) == 1) head.push_back(byte);
    if (absl::StartsWith(head, "GET /bad")) {
      testing::SendAll(fd, "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
    } else if (absl::StartsWith(head, "GET /never")) {
      recv(fd, &byte, 1, 0);
    } else if (absl::StartsWith(head, "GET /big")) {
      testing::SendAll(fd,
                       "HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n" + std::string(600, 'x'));
    } else {
      testing::SendAll(fd, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + head.substr(4, 4));
    }
  };
}

std::string AskAbout(const std::vector<std::string>& urls, absl::string_view headers = "") {
  std::string parts;
  for (const std::string& url : urls) {
    absl::StrAppend(&parts, R"({"type":"image_url","image_url":{"url":")", url, R"("}},)");
  }
  return ChatPost(absl::StrCat(R"({"messages":[{"role":"user","content":[)", parts,
                               R"({"type":"text","text":"What?"}]}]})"),
                  headers);
}

base::Json ErrorIn(const HttpReply& reply) { return (*base::ParseJson(reply.body))["error"]; }

class RemotePicturesTest : public ::testing::Test {
 protected:
  RemotePicturesTest() {
    gateway_.decode.at_once = [](testing::StubDecode::Stream& stream) { stream.End(); };
    gateway_.http.image_url_hosts = {absl::StrCat("127.0.0.1:", host_.port())};
    gateway_.http.image_url_loopback_port = host_.port();
  }
  std::string Url(const std::string& path) const {
    return absl::StrCat("http://127.0.0.1:", host_.port(), path);
  }

  Peer host_{Pictures()};
  HttpGateway gateway_;
};

TEST_F(RemotePicturesTest, AreReadInTheirOrder) {
  gateway_.Start();
  EXPECT_EQ(gateway_.Send(AskAbout({Url("/abc"), "data:;base64,QUJD", Url("/xyz")})).status, 200);
  const v1::DecodeStart& start = gateway_.decode.Await(0)->start();
  ASSERT_EQ(start.images_size(), 3);
  const auto key = [](absl::string_view bytes) {
    const base::Sha256Digest digest = base::Sha256Of(bytes);
    return std::string(digest.begin(), digest.end());
  };
  EXPECT_EQ(start.images(0).key(), key("/abc"));
  EXPECT_EQ(start.images(1).key(), key("ABC"));
  EXPECT_EQ(start.images(2).key(), key("/xyz"));
}

TEST_F(RemotePicturesTest, ThatAreNoneNameTheirPlace) {
  gateway_.Start();
  HttpReply reply = gateway_.Send(AskAbout({Url("/abc"), Url("/bad")}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(ErrorIn(reply)["code"], "image_url_status");
  EXPECT_EQ(ErrorIn(reply)["param"], "messages[0].content[1].image_url");
  reply = gateway_.Send(AskAbout({"http://elsewhere.example/abc"}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(ErrorIn(reply)["code"], "image_url_host");
  EXPECT_EQ(gateway_.admission->inflight(), 0);
}

TEST_F(RemotePicturesTest, TogetherAreNoLargerThanAMessage) {
  gateway_.options.max_image_bytes = 700;
  gateway_.options.max_message_bytes = 1024;
  gateway_.Start();
  EXPECT_EQ(gateway_.Send(AskAbout({Url("/big")})).status, 200);
  const HttpReply reply = gateway_.Send(AskAbout({Url("/big"), Url("/big")}));
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(ErrorIn(reply)["code"], "image_too_large");
  EXPECT_EQ(ErrorIn(reply)["param"], "messages[0].content[1].image_url");
}

TEST_F(RemotePicturesTest, MoreThanMayBeAreNotFetched) {
  gateway_.options.max_images = 2;
  gateway_.Start();
  const HttpReply reply = gateway_.Send(AskAbout({Url("/a"), Url("/b"), Url("/c")}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(ErrorIn(reply)["code"], "too_many_images");
  EXPECT_EQ(host_.connections(), 0);
}

TEST_F(RemotePicturesTest, OfAClientThatGoesGiveTheirPlaceBack) {
  gateway_.Start();
  {
    RawClient client(gateway_.port());
    client.Send(AskAbout({Url("/never")}));
    Await([&] { return host_.connections() == 1; });
  }
  Await([&] { return gateway_.server->connections() == 0; });
  host_.HangUp();
  Await([&] { return gateway_.admission->inflight() == 0; });
}

TEST_F(RemotePicturesTest, ThatComeTooLateForTheServersEndAreNotWaitedFor) {
  gateway_.Start();
  RawClient client(gateway_.port());
  client.Send(AskAbout({Url("/never")}));
  Await([&] { return host_.connections() == 1; });
  gateway_.running.AbortAll(base::Error(absl::StatusCode::kUnavailable, "DRAINING", "it ends"));
  const HttpReply reply = client.Read();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(ErrorIn(reply)["code"], "draining");
  EXPECT_EQ(gateway_.admission->inflight(), 0);
  host_.HangUp();  // the picture that did not come changes nothing
  EXPECT_EQ(gateway_.Send(AskAbout({Url("/abc")})).status, 200);
}

TEST_F(RemotePicturesTest, OfATenantLeaveTheOthersTheirs) {
  const auto keys = rpc::ApiKeys::Create("", gateway_.clock);
  gateway_.options.api_keys = keys->get();
  gateway_.options.tenant_share = 0.25;
  gateway_.tenant = [](absl::string_view key) { return std::string(key); };
  gateway_.Start();
  const char* ann = "Authorization: ann\r\n";
  RawClient one(gateway_.port()), two(gateway_.port());
  one.Send(AskAbout({Url("/never")}, ann));
  two.Send(AskAbout({Url("/never")}, ann));
  Await([&] { return host_.connections() == 2; });
  const HttpReply reply = gateway_.Send(AskAbout({Url("/abc")}, ann));
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(ErrorIn(reply)["code"], "quota_exceeded");
  EXPECT_NE(reply.Header("retry-after"), "");
  EXPECT_EQ(gateway_.Send(AskAbout({Url("/abc")}, "Authorization: bob\r\n")).status, 200);
  host_.HangUp();
}

TEST_F(RemotePicturesTest, AreNotFetchedByDefault) {
  gateway_.http.image_url_hosts.clear();
  gateway_.Start();
  const HttpReply reply = gateway_.Send(AskAbout({Url("/abc")}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(ErrorIn(reply)["message"].get<std::string>(), HasSubstr("--image_url_hosts"));
  EXPECT_EQ(host_.connections(), 0);
}

}  // namespace
}  // namespace tessera::gateway::http
