// Hundreds of streams, one of them with a client that does not read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "tests/services/gateway/http/http_fixture.h"

namespace tessera::gateway::http {
namespace {

using testing::Await;
using testing::ChatPost;
using testing::HttpGateway;
using testing::Question;
using testing::RawClient;
using Stream = testing::StubDecode::Stream;

constexpr int kStreams = 500;
constexpr int kTokens = 40;
constexpr int kPieceBytes = 4 << 10;

// What a stream said, from its events.
std::string TextOf(const std::string& body) {
  std::string text;
  for (absl::string_view event : absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
    if (event == "data: [DONE]") return text + "$";
    const base::Json json = *base::ParseJson(event.substr(6));
    if (json.contains("error")) return text + json["error"]["code"].get<std::string>();
    const base::Json& delta = json["choices"][0]["delta"];
    if (delta.contains("content")) text += delta["content"].get<std::string>();
  }
  return text;
}

std::string Token(int stream, int token) { return absl::StrCat(stream, ".", token, " "); }

std::string AllOf(int stream) {
  std::string all;
  for (int token = 0; token < kTokens; ++token) all += Token(stream, token);
  return all + "$";
}

// Streams in the order of their clients.
std::vector<std::shared_ptr<Stream>> StreamsOf(testing::StubDecode& decode, int count) {
  std::vector<std::shared_ptr<Stream>> streams(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto stream = decode.Await(static_cast<size_t>(i));
    streams[std::stoul(stream->start().messages(0).parts(0).text())] = stream;
  }
  return streams;
}

// Gives pieces until the gateway takes no more, for as long as it takes some; the bytes of them.
size_t FillUp(Stream& stream) {
  size_t bytes = 0;
  int still = 0;
  while (still < 300) {
    if (stream.Piece(std::string(kPieceBytes, '.'))) {
      bytes += kPieceBytes;
      still = 0;
    } else {
      ++still;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return bytes;
}

// Until the stream is cancelled. Where the sockets took some more meanwhile, it is filled again.
void EndByTime(HttpGateway& gateway, Stream& stream, absl::Duration step) {
  Await([&] {
    stream.Piece(std::string(kPieceBytes, '.'));
    gateway.clock.Advance(step);
    return stream.cancelled();
  });
}

TEST(StreamsTest, ASlowReaderIsEndedAndNobodyElseWaits) {
  HttpGateway gateway;
  gateway.http.idle_timeout = absl::Minutes(10);  // those that have their answers stay
  gateway.Start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(gateway.port(), i == 0 ? 4096 : 0));
    clients.back()->Send(ChatPost(Question(absl::StrCat(i), R"(,"stream":true)")));
  }
  const auto streams = StreamsOf(gateway.decode, kStreams);
  // What is held of the slow one's answer: two sinks and the sockets' buffers.
  EXPECT_LT(FillUp(*streams[0]), 2u << 20);
  for (int token = 0; token < kTokens; ++token) {
    for (int i = 1; i < kStreams; ++i) {
      EXPECT_TRUE(streams[static_cast<size_t>(i)]->Piece(Token(i, token)));
    }
  }
  for (int i = 1; i < kStreams; ++i) streams[static_cast<size_t>(i)]->End();
  for (int i = 1; i < kStreams; ++i) {
    EXPECT_EQ(TextOf(clients[static_cast<size_t>(i)]->Read().body), AllOf(i));
  }
  // The others are done while it still hangs; it keeps its place until its time is over.
  EXPECT_FALSE(streams[0]->cancelled());
  Await([&] { return gateway.admission->inflight() == 1; });
  EndByTime(gateway, *streams[0], gateway.options.slow_client_timeout);
  Await([&] { return gateway.admission->inflight() == 0; });
  Await([&] { return gateway.server->connections() == kStreams - 1; });
  EXPECT_FALSE(absl::StrContains(clients[0]->ReadAll(), "[DONE]"));
}

TEST(StreamsTest, AReaderThatWasSlowGetsEverything) {
  HttpGateway gateway;
  gateway.Start();
  RawClient client(gateway.port(), 4096);
  client.Send(ChatPost(Question("0", R"(,"stream":true)")));
  const auto stream = gateway.decode.Await(0);
  std::string all;
  for (int i = 0; i < 2000; ++i) {
    const std::string piece = absl::StrCat(i, std::string(1000, '.'));
    all += piece;
    Await([&] {
      const bool goes_on = stream->resumed();
      if (!goes_on) client.ReadSome();
      return goes_on;
    });
    stream->Piece(piece);
  }
  stream->End();
  EXPECT_EQ(TextOf(client.Read().body), all + "$");
  EXPECT_FALSE(stream->cancelled());
}

TEST(StreamsTest, TheDeadlineEndsASlowReaderToo) {
  HttpGateway gateway;
  gateway.options.deadline_cap = absl::Seconds(5);
  gateway.options.slow_client_timeout = absl::Hours(1);
  gateway.Start();
  RawClient client(gateway.port(), 4096);
  client.Send(ChatPost(Question("0", R"(,"stream":true)")));
  const auto stream = gateway.decode.Await(0);
  FillUp(*stream);
  EndByTime(gateway, *stream, absl::Seconds(5));
  Await([&] { return gateway.server->connections() == 0 && gateway.admission->inflight() == 0; });
}

// An answer that ended well waits in the kernel and here for write_timeout, no longer.
TEST(StreamsTest, TheLastWordsWaitForTheirReaderForAWhile) {
  HttpGateway gateway;
  gateway.http.write_timeout = absl::Milliseconds(50);
  gateway.Start();
  RawClient client(gateway.port(), 4096);
  client.Send(ChatPost(Question("0")));
  const auto stream = gateway.decode.Await(0);
  stream->Piece(std::string(16 << 20, '.'));
  stream->End();
  Await([&] { return gateway.server->connections() == 0; });
  EXPECT_EQ(gateway.admission->inflight(), 0);
}

TEST(StreamsTest, HundredsThatGoAtOnceAreAllCancelled) {
  HttpGateway gateway;
  gateway.Start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(gateway.port()));
    clients.back()->Send(
        ChatPost(Question(absl::StrCat(i), i % 2 == 0 ? R"(,"stream":true)" : "")));
  }
  const auto streams = StreamsOf(gateway.decode, kStreams);
  for (const auto& stream : streams) stream->Piece("some");
  clients.clear();
  for (const auto& stream : streams) Await([&] { return stream->cancelled(); });
  Await([&] { return gateway.admission->inflight() == 0 && gateway.server->connections() == 0; });
}

}  // namespace
}  // namespace tessera::gateway::http
