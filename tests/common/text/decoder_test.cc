#include "common/text/decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "common/base/error.h"
#include "tests/common/text/tiny_tokenizer.h"

namespace tessera::text {
namespace {

std::string ReasonFor(const std::string& json) {
  const base::Json parsed = base::Json::parse(json);
  return base::ReasonOf(Decoder::Parse(&parsed).status());
}

TEST(DecoderTest, StepsOutOfOrderOrUnknownAreRefused) {
  for (const char* json :
       {R"({"type": "WordPiece"})", R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})",
        R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})",
        R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
               {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})",
        R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteLevel"}]})",
        R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]})",
        R"({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""})", "null"}) {
    EXPECT_EQ(ReasonFor(json), "UNSUPPORTED_TOKENIZER") << json;
  }
  for (const char* json : {R"([])", R"({})", R"({"type": 3})", R"({"type": "Sequence"})",
                           R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})",
                           R"({"type": "Metaspace"})"}) {
    EXPECT_EQ(ReasonFor(json), "BAD_TOKENIZER") << json;
  }
}

TEST(DecoderTest, FirstSpaceIsStrippedOnceAndNeverInAContinuation) {
  const auto tokenizer = Make(TinyMetaspace());
  const std::vector<int32_t> ids = Encode(*tokenizer, " a b");  // two marks, a, a mark, b
  EXPECT_EQ(tokenizer->Decode(ids, true), "a b");
  StreamDecoder fresh(*tokenizer), after(*tokenizer, ids);
  std::string first, second;
  for (const int32_t id : ids) {
    first += fresh.Add(id);
    second += after.Add(id);
  }
  EXPECT_EQ(first, "a b");
  EXPECT_EQ(second, " a b");
}

TEST(DecoderTest, MetaspaceDropsTheMarksOfTheFirstToken) {
  base::Json file = TinyMetaspace({"\u2581 a"});
  file["decoder"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
  const auto tokenizer = Make(file);
  const int32_t a = *tokenizer->IdOf(
      "\u2581"
      "a");
  EXPECT_EQ(tokenizer->Decode({1, a, a}, true), "a a");
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.Add(1), "");
  EXPECT_EQ(stream.Add(a), "a");
  EXPECT_EQ(stream.Add(a), " a");
}

TEST(DecoderTest, ABadRunOfByteTokensIsReplacedByteByByteInABatch) {
  const auto tokenizer = Make(TinyMetaspace());
  const auto byte = [&](int value) { return value + 3; };
  const std::vector<int32_t> ids = {byte(0xC3), byte(0xA9), byte(0xFF)};
  EXPECT_EQ(tokenizer->Decode(ids, true), "\uFFFD\uFFFD\uFFFD");
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.Add(ids[0]), "");
  EXPECT_EQ(stream.Add(ids[1]), "\u00E9");
  EXPECT_EQ(stream.Add(ids[2]), "\uFFFD");
}

TEST(DecoderTest, IdsWithoutATokenAddNothing) {
  const auto tokenizer = Make(TinyByteLevel());
  EXPECT_EQ(tokenizer->Decode({'a', -1, 1 << 30, 256, 'b'}, false), "ab");
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.Add(-1) + stream.Add(256) + stream.Add(1 << 30), "");
}

TEST(DecoderTest, PiecesAreValidUtf8AndJoinToTheBatchText) {
  base::Json file = TinyByteLevel();
  AddToken("<\u5DE5>", {{"special", false}}, &file);
  const auto tokenizer = Make(file);
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids(random() % 12);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 257);
    StreamDecoder stream(*tokenizer);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string piece = stream.Add(id);
      ASSERT_TRUE(ValidateUtf8(piece).ok());
      joined += piece;
    }
    joined += stream.Flush();
    ASSERT_EQ(joined, tokenizer->Decode(ids, true));
  }
}

}  // namespace
}  // namespace tessera::text
