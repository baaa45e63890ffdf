#include "common/text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/base/error.h"

namespace tessera::text {
namespace {

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  auto regex = Regex::Compile(pattern, "pattern");
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::vector<std::string> out;
  if (!regex.ok()) return out;
  const absl::Status status = (*regex)->ForEachMatch(
      text, [&](size_t begin, size_t end) { out.push_back(text.substr(begin, end - begin)); });
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

std::string RefusalOf(const std::string& pattern) {
  const auto regex = Regex::Compile(pattern, "model.pattern");
  EXPECT_FALSE(regex.ok()) << pattern;
  EXPECT_THAT(std::string(regex.status().message()), ::testing::HasSubstr("model.pattern"));
  return base::ReasonOf(regex.status());
}

using List = std::vector<std::string>;

TEST(RegexTest, SpaceIsWhiteSpaceOfUnicodeInAndOutOfClasses) {
  const std::string text = "a\u00A0b\u3000c\u180E\u200Bd\u0085";
  EXPECT_EQ(Matches("\\s", text), (List{"\u00A0", "\u3000", "\u0085"}));
  EXPECT_EQ(Matches("[^\\s]+", text), (List{"a", "b", "c\u180E\u200Bd"}));
  EXPECT_EQ(Matches("\\S+", text), (List{"a", "b", "c\u180E\u200Bd"}));
  EXPECT_EQ(Matches("[\\Sx]+", text), (List{"a", "b", "c\u180E\u200Bd"}));
}

TEST(RegexTest, CaseIsFoldedBeyondAscii) {
  EXPECT_EQ(Matches("(?i:'s|'t)", "'S 'T '\u017F 'x"), (List{"'S", "'T", "'\u017F"}));
}

TEST(RegexTest, RubyEscapesKeepTheirMeaning) {
  EXPECT_EQ(Matches("\\v", "a\vb\nc"), List{"\v"});
  EXPECT_EQ(Matches("\\u4e16|\\x{e9}|\\x41", "\u4E16\u00E9A"), (List{"\u4E16", "\u00E9", "A"}));
  EXPECT_EQ(Matches("^.$", "a\nbb\nc"), (List{"a", "c"}));
  EXPECT_EQ(Matches("a{,2}b", "aaab"), List{"aab"});
  EXPECT_EQ(Matches("a{x|{", "a{x {"), (List{"a{x", "{"}));
  EXPECT_EQ(Matches("\\w+", "d1_\u00B2\u0661 -"), List{"d1_\u00B2\u0661"});
  EXPECT_EQ(Matches("[\\w]+", "d1_\u00B2\u0661 -"), (List{"d1_", "\u0661"}));
}

TEST(RegexTest, EmptyMatchesAdvanceByCharacters) {
  EXPECT_EQ(Matches("a*", "\u4E16aa\u4E16"), (List{"", "aa", ""}));
  EXPECT_EQ(Matches("x*", ""), List{""});
}

TEST(RegexTest, MoreGroupsThanOffsetsStillMatch) {
  EXPECT_EQ(Matches("(a)(b)(c)?", "abab"), (List{"ab", "ab"}));
}

TEST(RegexTest, ConstructsOfOtherMeaningAreRefusedByName) {
  for (const char* pattern : {"\\h", "\\b", "\\W", "\\X", "\\K", "\\R", "a{1,2}+", "[a[bc]]",
                              "[a&&b]", "(?m:.)", "(?<name>x)", "[[:alpha:]]", "\\pL", "[]"}) {
    EXPECT_EQ(RefusalOf(pattern), "UNSUPPORTED_TOKENIZER") << pattern;
  }
}

TEST(RegexTest, BrokenPatternsAreRefused) {
  for (const char* pattern : {"(", "[a", "a\\", "\\p{Nonsense}", "*", "(?<=a+)b"}) {
    EXPECT_EQ(RefusalOf(pattern), "BAD_TOKENIZER") << pattern;
  }
}

TEST(RegexTest, EndlessBacktrackingIsAnErrorNotACrash) {
  const auto regex = Regex::Compile("(a|aa|a?)+$", "pattern");
  ASSERT_TRUE(regex.ok()) << regex.status();
  const absl::Status status =
      (*regex)->ForEachMatch(std::string(20000, 'a') + "b", [](size_t, size_t) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(status), "REGEX_LIMIT");
}

}  // namespace
}  // namespace tessera::text
