#include "services/gateway/http/image_fetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "tests/services/gateway/http/http_fixture.h"
#include "tests/support/peer.h"

namespace tessera::gateway::http {
namespace {

using ::testing::HasSubstr;
using testing::Peer;
using testing::SendAll;

// Reads a request's head from a socket.
std::string ReadHead(int fd) {
  std::string head;
  char byte = 0;
  while (!absl::EndsWith(head, "\r\n\r\n") && recv(fd, &byte, 1, 0) == 1) head.push_back(byte);
  return head;
}

// A host that answers every request with the same bytes.
Peer::Serve Answering(std::string bytes) {
  return [bytes = std::move(bytes)](int fd) {
    ReadHead(fd);
    SendAll(fd, bytes);
  };
}

std::string Ok(const std::string& body) {
  return absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

FetchOptions OptionsFor(const Peer& peer) {
  FetchOptions options;
  options.hosts = {absl::StrCat("127.0.0.1:", peer.port()),
                   absl::StrCat("localhost:", peer.port())};
  options.loopback_port = peer.port();
  options.timeout = absl::Minutes(5);  // only a fault takes so long
  options.max_bytes = 1000;
  return options;
}

absl::StatusOr<std::string> Fetch(ImageFetcher& fetcher, const std::string& url) {
  std::promise<absl::StatusOr<std::string>> result;
  fetcher.Fetch(url, "",
                [&result](absl::StatusOr<std::string> got) { result.set_value(std::move(got)); });
  return result.get_future().get();
}

absl::StatusOr<std::string> FetchOnce(FetchOptions options, const std::string& url) {
  auto fetcher = ImageFetcher::Create(std::move(options));
  EXPECT_TRUE(fetcher.ok()) << fetcher.status();
  return Fetch(**fetcher, url);
}

std::string Url(const Peer& peer, const std::string& host = "127.0.0.1") {
  return absl::StrCat("http://", host, ":", peer.port(), "/a/b.png?c=d");
}

TEST(ImageFetcherTest, TheBodyIsThePicture) {
  std::string head;
  Peer peer([&head](int fd) {
    head = ReadHead(fd);
    SendAll(fd, Ok("picture"));
  });
  const auto options = OptionsFor(peer);
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const absl::StatusOr<std::string> got = FetchOnce(options, Url(peer, host));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, "picture");
    EXPECT_THAT(head, HasSubstr("GET /a/b.png?c=d HTTP/1.1\r\n"));
    EXPECT_THAT(head, HasSubstr(absl::StrCat("Host: ", host, ":", peer.port(), "\r\n")));
  }
}

TEST(ImageFetcherTest, OtherHostsAreNotContacted) {
  Peer peer(Answering(Ok("secret")));
  const auto options = OptionsFor(peer);
  for (const std::string& url : {absl::StrCat("http://127.0.0.2:", peer.port(), "/"),
                                 absl::StrCat("http://2130706433:", peer.port(), "/"),
                                 absl::StrCat("http://0x7f.1:", peer.port(), "/"),
                                 absl::StrCat("http://[::1]:", peer.port()),
                                 absl::StrCat("http://127.0.0.1.nip.example:", peer.port(), "/")}) {
    EXPECT_EQ(base::ReasonOf(FetchOnce(options, url).status()), "IMAGE_URL_HOST") << url;
  }
  EXPECT_EQ(base::ReasonOf(FetchOnce(options, "file:///etc/passwd").status()), "IMAGE_URL");
  EXPECT_EQ(peer.connections(), 0);
}

// Whoever names an address in numbers, or has a name that leads to one, comes no further.
TEST(ImageFetcherTest, AddressesThatAreNotPublicAreNotContacted) {
  Peer peer(Answering(Ok("secret")));
  for (const char* host :
       {"127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0",
        "169.254.169.254", "10.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[fe80::1]"}) {
    FetchOptions options = OptionsFor(peer);
    options.loopback_port = 0;
    options.hosts = {absl::StrCat(host, ":", peer.port())};
    EXPECT_EQ(base::ReasonOf(FetchOnce(options, Url(peer, host)).status()), "IMAGE_URL_ADDRESS")
        << host;
  }
  EXPECT_EQ(peer.connections(), 0);
}

TEST(ImageFetcherTest, RedirectsAreNotFollowed) {
  Peer target(Answering(Ok("secret")));
  for (const int status : {301, 302, 303, 307, 308}) {
    Peer peer(Answering(absl::StrCat("HTTP/1.1 ", status, " Moved\r\nLocation: http://127.0.0.1:",
                                     target.port(), "/\r\nContent-Length: 0\r\n\r\n")));
    const absl::Status refused = FetchOnce(OptionsFor(peer), Url(peer)).status();
    EXPECT_EQ(base::ReasonOf(refused), "IMAGE_URL_STATUS") << status;
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(target.connections(), 0);
}

TEST(ImageFetcherTest, AnswersThatAreNoneAreRefused) {
  const std::pair<std::string, const char*> cases[] = {
      {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "IMAGE_URL_STATUS"},
      {"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "IMAGE_URL_STATUS"},
      {"", "IMAGE_URL_UNREACHABLE"},
      {"SSH-2.0-OpenSSH\r\n\r\n", "IMAGE_URL_UNREACHABLE"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut", "IMAGE_URL_UNREACHABLE"},
      {absl::StrCat("HTTP/1.1 200 OK\r\nX: ", std::string(40000, 'x'), "\r\n\r\n"),
       "IMAGE_URL_UNREACHABLE"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "IMAGE_TOO_LARGE"},
      {Ok(std::string(1001, 'x')), "IMAGE_TOO_LARGE"},
      {absl::StrCat("HTTP/1.1 200 OK\r\n\r\n", std::string(100000, 'x')), "IMAGE_TOO_LARGE"},
      {absl::StrCat("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n",
                    std::string(2048, 'x'), "\r\n"),
       "IMAGE_TOO_LARGE"},
  };
  for (const auto& [bytes, reason] : cases) {
    Peer peer(Answering(bytes));
    EXPECT_EQ(base::ReasonOf(FetchOnce(OptionsFor(peer), Url(peer)).status()), reason)
        << bytes.substr(0, 80);
  }
}

// The time is that of the whole, however often a byte comes.
TEST(ImageFetcherTest, WhatDripsOrSaysNothingIsGivenUp) {
  const std::string start = "HTTP/1.1 200 OK\r\n";
  const std::string head = start + "Content-Length: 900\r\n\r\n";
  for (const auto& [at_once, dripping] :
       {std::pair(head + "x", false), std::pair(head, true), std::pair(start + "X-Long: ", true)}) {
    Peer peer([&at_once = at_once, drips = dripping](int fd) {
      ReadHead(fd);
      SendAll(fd, at_once);
      for (int i = 0; drips && i < 900 && SendAll(fd, "x"); ++i) {
        absl::SleepFor(absl::Milliseconds(10));
      }
      ReadHead(fd);  // until the other side has gone
    });
    FetchOptions options = OptionsFor(peer);
    options.timeout = absl::Milliseconds(100);  // all of it takes 9 s
    const absl::Status refused = FetchOnce(options, Url(peer)).status();
    EXPECT_EQ(base::ReasonOf(refused), "IMAGE_URL_TIMEOUT") << at_once << dripping;
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ImageFetcherTest, NobodyListensIsUnreachable) {
  const int port = testing::FreeServerPort();
  FetchOptions options;
  options.hosts = {absl::StrCat("127.0.0.1:", port)};
  options.loopback_port = port;
  const std::string url = absl::StrCat("http://127.0.0.1:", port, "/");
  EXPECT_EQ(base::ReasonOf(FetchOnce(options, url).status()), "IMAGE_URL_UNREACHABLE");
}

TEST(ImageFetcherTest, OnlySoManyAtATime) {
  Peer peer([](int fd) { ReadHead(fd), ReadHead(fd); });  // never answers
  FetchOptions options = OptionsFor(peer);
  options.max_fetches = 2;
  auto fetcher = *ImageFetcher::Create(options);
  std::atomic<int> cancelled{0};
  for (int i = 0; i < 2; ++i) {
    fetcher->Fetch(Url(peer), "", [&cancelled](absl::StatusOr<std::string> got) {
      cancelled += absl::IsCancelled(got.status());
    });
  }
  const absl::Status refused = Fetch(*fetcher, Url(peer)).status();
  EXPECT_EQ(base::ReasonOf(refused), "FETCHES_FULL");
  EXPECT_TRUE(base::RetryOf(refused).has_value());
  fetcher.reset();
  EXPECT_EQ(cancelled.load(), 2);
}

TEST(ImageFetcherTest, ATenantHasItsShareOfTheFetchesAndOneAtLeast) {
  Peer peer([](int fd) { ReadHead(fd), ReadHead(fd); });  // never answers
  for (const auto& [share, has] : {std::pair(0.5, 2), std::pair(0.01, 1)}) {
    FetchOptions options = OptionsFor(peer);
    options.max_fetches = 4;
    options.tenant_share = share;
    auto fetcher = *ImageFetcher::Create(options);
    const auto ask = [&](const std::string& tenant) {  // as it was refused, at once
      const auto refused = std::make_shared<absl::Status>();
      fetcher->Fetch(Url(peer), tenant, [refused](absl::StatusOr<std::string> got) {
        if (absl::IsResourceExhausted(got.status())) *refused = got.status();
      });
      return *refused;
    };
    for (int i = 0; i < has; ++i) EXPECT_TRUE(ask("ann").ok());
    EXPECT_EQ(base::ReasonOf(ask("ann")), "QUOTA_EXCEEDED");
    EXPECT_TRUE(base::RetryOf(ask("ann")).has_value());
    for (int i = has; i < 4; ++i) EXPECT_TRUE(ask(absl::StrCat("other ", i)).ok());
    EXPECT_EQ(base::ReasonOf(ask("dan")), "FETCHES_FULL");
  }
}

// Names that nothing answers for take the places of fetches, not a queue in which others wait.
TEST(ImageFetcherTest, ALookUpThatHangsKeepsItsPlaceUntilItIsOver) {
  Peer peer(Answering(Ok("picture")));
  FetchOptions options = OptionsFor(peer);
  options.max_fetches = 1;
  options.timeout = absl::Milliseconds(50);
  std::promise<void> answer;
  options.before_look_up = [hangs = answer.get_future().share()](const std::string& host) {
    if (host == "localhost") hangs.wait();
  };
  const auto fetcher = *ImageFetcher::Create(options);
  EXPECT_EQ(base::ReasonOf(Fetch(*fetcher, Url(peer, "localhost")).status()), "IMAGE_URL_TIMEOUT");
  EXPECT_EQ(base::ReasonOf(Fetch(*fetcher, Url(peer)).status()), "FETCHES_FULL");
  answer.set_value();
  testing::Await(
      [&] { return base::ReasonOf(Fetch(*fetcher, Url(peer)).status()) != "FETCHES_FULL"; });
}

TEST(ImageFetcherTest, AServerWithoutTlsIsNoHttps) {
  Peer peer([](int fd) {
    char byte = 0;
    recv(fd, &byte, 1, 0);
    SendAll(fd, Ok("picture"));
  });
  EXPECT_EQ(base::ReasonOf(
                FetchOnce(OptionsFor(peer), absl::StrCat("https://127.0.0.1:", peer.port(), "/"))
                    .status()),
            "IMAGE_URL_UNREACHABLE");
}

}  // namespace
}  // namespace tessera::gateway::http
