#include <gtest/gtest.h>

#include "tests/common/text/tiny_tokenizer.h"

namespace tessera::text {
namespace {

std::vector<std::string> Tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> out;
  for (const int32_t id : Encode(tokenizer, text)) out.push_back(tokenizer.TokenOf(id));
  return out;
}

using List = std::vector<std::string>;

TEST(BpeModelTest, LowestRankMergesFirstThenLeftmost) {
  const auto tokenizer = Make(TinyByteLevel({"b c", "a b", "a a", "aa a"}));
  EXPECT_EQ(Tokens(*tokenizer, "abc"), (List{"a", "bc"}));
  EXPECT_EQ(Tokens(*tokenizer, "aaaaa"), (List{"aa", "aaa"}));
}

TEST(BpeModelTest, IgnoreMergesTakesAKnownWordWhole) {
  base::Json file = TinyByteLevel({"a b", "b c"});
  file["model"]["vocab"]["abc"] = 258;
  EXPECT_EQ(Tokens(*Make(file), "abc"), (List{"ab", "c"}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(Tokens(*Make(file), "abc"), List{"abc"});
}

TEST(BpeModelTest, UnknownCharactersFallBackToBytesThenToTheUnknownToken) {
  base::Json file = TinyMetaspace();
  EXPECT_EQ(Tokens(*Make(file), "a\u00E9"), (List{"\u2581", "a", "<0xC3>", "<0xA9>"}));
  file["model"]["byte_fallback"] = false;
  EXPECT_EQ(Tokens(*Make(file), "a\u00E9\u00E9b"), (List{"\u2581", "a", "<unk>", "b"}));
  file["model"]["fuse_unk"] = false;
  EXPECT_EQ(Tokens(*Make(file), "\u00E9\u00E9"), (List{"\u2581", "<unk>", "<unk>"}));
}

TEST(BpeModelTest, MergesMayBeLinesOrPairs) {
  base::Json file = TinyByteLevel({"a b"});
  const auto lines = Encode(*Make(file), "abab");
  file["model"]["merges"][0] = {"a", "b"};
  EXPECT_EQ(Encode(*Make(file), "abab"), lines);
  EXPECT_EQ(lines.size(), 2);
}

}  // namespace
}  // namespace tessera::text
