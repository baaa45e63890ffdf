#include "services/gateway/http/request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera::gateway::http {
namespace {

using Step = RequestReader::Step;

constexpr size_t kMaxHeader = 4096;
constexpr size_t kMaxBody = 4 << 20;

// A read that is under way into the reader's room.
class Pipe {
 public:
  Pipe(RequestReader& reader, std::string bytes) : reader_(reader), bytes_(std::move(bytes)) {}

  void Begin() { room_ = reader_.Room(); }
  // Of `most` bytes at most; false at the end.
  bool End(size_t most) {
    const size_t count = std::min({most, room_.size(), bytes_.size() - at_});
    std::memcpy(room_.data(), bytes_.data() + at_, count);
    at_ += count;
    reader_.Commit(count);
    return count > 0;
  }

 private:
  RequestReader& reader_;
  const std::string bytes_;
  size_t at_ = 0;
  absl::Span<char> room_;
};

std::string HeadOf(absl::string_view fields) {
  return absl::StrCat("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n", fields, "\r\n");
}

std::string RequestOf(const std::string& body) {
  return HeadOf(absl::StrCat("Content-Length: ", body.size(), "\r\n")) + body;
}

std::string ChunkedRequestOf(const std::string& body, size_t chunk) {
  std::string out = HeadOf("Transfer-Encoding: chunked\r\n");
  for (size_t at = 0; at < body.size(); at += chunk) {
    const std::string part = body.substr(at, chunk);
    absl::StrAppend(&out, absl::Hex(part.size()), "\r\n", part, "\r\n");
  }
  return out + "0\r\n\r\n";
}

// Steps until something other than kMore, reading up to `most` bytes at a time.
Step StepOn(RequestReader& reader, Pipe& pipe, size_t most) {
  while (true) {
    const Step step = reader.Advance();
    if (step != Step::kMore) return step;
    pipe.Begin();
    if (!pipe.End(most)) return Step::kMore;
  }
}

TEST(RequestReaderTest, ABodyOfAnnouncedLengthIsReadToWhereItStays) {
  RequestReader reader(kMaxHeader, kMaxBody);
  const std::string head = HeadOf("Content-Length: 1000000\r\n");
  Pipe head_pipe(reader, head);
  ASSERT_EQ(StepOn(reader, head_pipe, 1 << 20), Step::kHead);
  reader.ReadBody();
  ASSERT_EQ(reader.Advance(), Step::kMore);
  const char* const place = reader.Room().data();
  reader.Commit(1);
  while (reader.Advance() == Step::kMore) reader.Commit(reader.Room().size());
  EXPECT_EQ(reader.body_bytes(), 1'000'000u);
  EXPECT_EQ(reader.TakeBody().data(), place);
}

TEST(RequestReaderTest, RequestsComeWholeHoweverTheirBytesCome) {
  std::mt19937 random(5);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 100; ++round) {
    std::vector<std::string> bodies;
    std::string bytes;
    for (size_t requests = 1 + below(4); requests > 0; --requests) {
      const size_t size = below(3) == 0 ? below(600'000) : below(40'000);
      std::string body(size, ' ');
      for (size_t i = 0; i < size; i += 97) body[i] = static_cast<char>('a' + (i + size) % 26);
      bytes += below(3) == 0 ? "\r\n" : "";
      bytes += below(3) > 0 ? RequestOf(body) : ChunkedRequestOf(body, 1 + below(30'000));
      bodies.push_back(std::move(body));
    }
    RequestReader reader(kMaxHeader, kMaxBody);
    Pipe pipe(reader, bytes);
    const size_t most = below(2) ? 1 + below(3000) : size_t{1} << 20;
    for (const std::string& body : bodies) {
      Step step = StepOn(reader, pipe, most);
      ASSERT_EQ(step, Step::kHead);
      if (!reader.complete()) {
        reader.ReadBody();
        ASSERT_EQ(StepOn(reader, pipe, most), Step::kDone);
      }
      ASSERT_EQ(reader.body_bytes(), body.size());
      ASSERT_TRUE(reader.TakeBody() == body);
      reader.Next();
    }
    EXPECT_FALSE(reader.HasMore());
    EXPECT_FALSE(reader.begun());
  }
}

// The connection reads on while it answers, and looks at what had come before the read ends.
TEST(RequestReaderTest, WhatIsReadWhileOthersAreTakenIsKept) {
  RequestReader reader(kMaxHeader, kMaxBody);
  Pipe pipe(reader, RequestOf("first") + RequestOf("second") + RequestOf("third"));
  pipe.Begin();
  ASSERT_TRUE(pipe.End(RequestOf("first").size() + RequestOf("second").size()));
  pipe.Begin();
  for (const char* body : {"first", "second"}) {
    ASSERT_EQ(reader.Advance(), Step::kHead);
    reader.ReadBody();
    ASSERT_EQ(reader.Advance(), Step::kDone);
    EXPECT_EQ(reader.TakeBody(), body);
    reader.Next();
  }
  EXPECT_EQ(reader.Advance(), Step::kMore);
  ASSERT_TRUE(pipe.End(1000));
  ASSERT_EQ(reader.Advance(), Step::kHead);
  reader.ReadBody();
  ASSERT_EQ(reader.Advance(), Step::kDone);
  EXPECT_EQ(reader.TakeBody(), "third");
}

TEST(RequestReaderTest, ABodyTakesNoMoreAheadThanHasCome) {
  RequestReader reader(kMaxHeader, kMaxBody);
  Pipe pipe(reader, HeadOf("Content-Length: 3000000\r\n") + std::string(3'000'000, 'x'));
  ASSERT_EQ(StepOn(reader, pipe, 1), Step::kHead);
  reader.ReadBody();
  ASSERT_EQ(reader.Advance(), Step::kMore);
  for (size_t come = 0; come < 3'000'000;) {
    const size_t room = reader.Room().size();
    EXPECT_LE(room, std::clamp(come, size_t{16} << 10, size_t{256} << 10));
    pipe.Begin();
    ASSERT_TRUE(pipe.End(1 << 20));
    come += room;
  }
  EXPECT_EQ(reader.Advance(), Step::kDone);
  EXPECT_EQ(reader.TakeBody(), std::string(3'000'000, 'x'));
}

TEST(RequestReaderTest, AnAbandonedBodyTakesNoMoreMemory) {
  RequestReader reader(kMaxHeader, kMaxBody);
  Pipe pipe(reader, HeadOf("Content-Length: 3000000\r\n") + std::string(2'000'000, 'x'));
  ASSERT_EQ(StepOn(reader, pipe, 1 << 20), Step::kHead);
  reader.ReadBody();
  ASSERT_EQ(reader.Advance(), Step::kMore);
  pipe.Begin();
  reader.AbandonBody();  // while a read into it is under way
  ASSERT_TRUE(pipe.End(1 << 20));
  EXPECT_FALSE(reader.complete());
  size_t held = 0;
  for (; !reader.IsFull(); ++held) {
    pipe.Begin();
    ASSERT_TRUE(pipe.End(1 << 20));
  }
  EXPECT_LE(held, 8u);
  reader.DropInput();
  EXPECT_FALSE(reader.IsFull());
  EXPECT_FALSE(reader.HasMore());
}

TEST(RequestReaderTest, WhatIsNoRequestOrTooLargeIsBroken) {
  for (const std::string& bytes :
       {std::string("nonsense\r\n\r\n"), HeadOf("Content-Length: 5000000\r\n"),
        HeadOf(absl::StrCat("X: ", std::string(kMaxHeader, 'x'), "\r\n")),
        HeadOf("Content-Length: x\r\n")}) {
    RequestReader reader(kMaxHeader, kMaxBody);
    Pipe pipe(reader, bytes);
    EXPECT_EQ(StepOn(reader, pipe, 1 << 20), Step::kBroken) << bytes.substr(0, 60);
    EXPECT_TRUE(reader.error());
  }
}

TEST(RequestReaderTest, ExtensionsOfChunksThatFillTheInputAreTooMuch) {
  RequestReader reader(kMaxHeader, kMaxBody);
  Pipe pipe(reader, HeadOf("Transfer-Encoding: chunked\r\n") + "5;" + std::string(200'000, 'x'));
  ASSERT_EQ(StepOn(reader, pipe, 1 << 20), Step::kHead);
  reader.ReadBody();
  EXPECT_EQ(StepOn(reader, pipe, 1 << 20), Step::kTooMuch);
}

}  // namespace
}  // namespace tessera::gateway::http
