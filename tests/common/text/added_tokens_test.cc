#include <gtest/gtest.h>

#include "tests/common/text/tiny_tokenizer.h"

namespace tessera::text {
namespace {

// Ids above the bytes, as "[token]", and bytes as they are.
std::string Show(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) {
    out += id < 256 ? std::string(1, static_cast<char>(id)) : "[" + tokenizer.TokenOf(id) + "]";
  }
  return out;
}

std::string Show(const Tokenizer& tokenizer, const std::string& text) {
  return Show(tokenizer, Encode(tokenizer, text));
}

TEST(AddedTokensTest, LeftmostThenLongestWins) {
  base::Json file = TinyByteLevel();
  for (const char* token : {"<a>", "<a><b>", "b><c>"}) AddToken(token, {}, &file);
  const auto tokenizer = Make(file);
  EXPECT_EQ(Show(*tokenizer, "x<a><b><c>"), "x[<a><b>]<c>");
  EXPECT_EQ(Show(*tokenizer, "<b><c><a>"), "<[b><c>][<a>]");
}

TEST(AddedTokensTest, StripSwallowsWhiteSpaceOnItsSide) {
  base::Json file = TinyByteLevel();
  AddToken("<l>", {{"lstrip", true}}, &file);
  AddToken("<r>", {{"rstrip", true}}, &file);
  const auto tokenizer = Make(file);
  EXPECT_EQ(Show(*tokenizer, "a \u3000\n<l> b"), "a[<l>] b");
  EXPECT_EQ(Show(*tokenizer, "a <r>\t\u00A0b"), "a [<r>]b");
  EXPECT_EQ(Show(*tokenizer, "<r>  <l>"), "[<r>][<l>]");
}

TEST(AddedTokensTest, SingleWordNeedsBordersOnBothSides) {
  base::Json file = TinyByteLevel();
  AddToken("shelf", {{"single_word", true}, {"special", false}}, &file);
  const auto tokenizer = Make(file);
  EXPECT_EQ(Show(*tokenizer, "shelf, shelf"), "[shelf], [shelf]");
  EXPECT_EQ(Show(*tokenizer, "shelfs _shelf"), "shelfs _shelf");
  EXPECT_EQ(Encode(*tokenizer, "\u00E9shelf").size(), 7);
}

TEST(AddedTokensTest, NormalizedTokensAreFoundInTheNormalizedText) {
  base::Json file = TinyByteLevel();
  file["normalizer"] = {{"type", "NFC"}};
  const int32_t id = AddToken("caf\u00E9", {{"normalized", true}}, &file);
  EXPECT_EQ(Encode(*Make(file), "cafe\u0301"), std::vector<int32_t>{id});
  file["added_tokens"][0]["normalized"] = false;
  EXPECT_EQ(Encode(*Make(file), "cafe\u0301").size(), 5);
}

TEST(AddedTokensTest, TokensThatReadAlikeAfterNormalizingAreOne) {
  base::Json file = TinyByteLevel();
  file["normalizer"] = {{"type", "NFC"}};
  AddToken("e\u0301", {{"normalized", true}, {"special", false}}, &file);
  const int32_t special = AddToken("\u00E9", {{"normalized", true}}, &file);
  EXPECT_EQ(Encode(*Make(file), "\u00E9"), std::vector<int32_t>{special});
}

TEST(AddedTokensTest, WithoutParsingSpecialTokensAreTextAndOthersAreFound) {
  base::Json file = TinyByteLevel();
  AddToken("<s>", {}, &file);
  AddToken("<t>", {{"special", false}}, &file);
  const auto tokenizer = Make(file);
  EncodeOptions options;
  options.parse_special = false;
  EXPECT_EQ(Show(*tokenizer, *tokenizer->Encode("<s><t>", options)), "<s>[<t>]");
}

}  // namespace
}  // namespace tessera::text
