#include "services/decode/stream/text_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/text/tokenizer.h"
#include "common/text/utf8.h"

namespace tessera::decode {
namespace {

class TextStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = text::Tokenizer::Load("models/shelf-vqa");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  std::vector<int32_t> Ids(const std::string& text) {
    auto ids = tokenizer_->Encode(text, {});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return *ids;
  }

  // Token by token; the text, and whether it ended at a stop.
  std::pair<std::string, bool> Stream(const std::vector<int32_t>& ids,
                                      std::vector<std::string> stops) {
    TextStream stream(*tokenizer_, std::move(stops));
    std::string out;
    for (const int32_t id : ids) {
      if (stream.Push({&id, 1}, out)) break;
    }
    const bool stopped = stream.Finish(out);
    return {out, stopped};
  }

  std::unique_ptr<text::Tokenizer> tokenizer_;
};

TEST_F(TextStreamTest, WithoutStopsAllTextComesOut) {
  const std::vector<int32_t> ids = Ids("three red books and a \xF0\x9F\x98\x80 face");
  EXPECT_EQ(Stream(ids, {}), std::make_pair(tokenizer_->Decode(ids, true), false));
}

TEST_F(TextStreamTest, AStopCutsInsideATokenAndAcrossTokens) {
  const std::vector<int32_t> ids = Ids("three red books and a cup");
  const std::string text = tokenizer_->Decode(ids, true);
  for (const std::string stop : {"d boo", "red", "e", "a cup", "s and a c"}) {
    EXPECT_EQ(Stream(ids, {stop}), std::make_pair(text.substr(0, text.find(stop)), true)) << stop;
  }
}

TEST_F(TextStreamTest, APieceNeverEndsWithinACharacter) {
  TextStream stream(*tokenizer_, {"\xF0\x9F\x98\x81"});
  for (const int32_t id : Ids("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 \xE4\xBD\xA0\xE5\xA5\xBD")) {
    std::string piece;
    stream.Push({&id, 1}, piece);
    EXPECT_TRUE(text::ValidateUtf8(piece).ok()) << piece;
  }
}

}  // namespace
}  // namespace tessera::decode
