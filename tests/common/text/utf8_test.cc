#include "common/text/utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

namespace tessera::text {
namespace {

TEST(Utf8Test, AcceptsEveryScalarValueAndReadsItBack) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_TRUE(ValidateUtf8(text).ok()) << c;
    const Utf8Scan scan = ScanUtf8(text, 0);
    ASSERT_EQ(scan.code_point, c);
    ASSERT_EQ(scan.bytes, text.size());
    ASSERT_EQ(Utf8Length(text[0]), text.size());
  }
}

TEST(Utf8Test, RefusalNamesTheOffsetOfTheFirstBadByte) {
  const absl::Status status = ValidateUtf8("sixteen letters \xC3(");
  EXPECT_EQ(base::ReasonOf(status), "INVALID_UTF8");
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("offset 16 of 18"));
  EXPECT_FALSE(ValidateUtf8("\xED\xA0\x80").ok());      // a surrogate
  EXPECT_FALSE(ValidateUtf8("\xC0\xAF").ok());          // overlong
  EXPECT_FALSE(ValidateUtf8("\xF4\x90\x80\x80").ok());  // above U+10FFFF
}

TEST(Utf8Test, PreviousCharStepsOverWholeCharacters) {
  const std::string text = "a\u00E9\u4E16\U0001F600";
  size_t end = text.size();
  std::vector<size_t> starts;
  while (end > 0) starts.push_back(end = PreviousChar(text, end));
  EXPECT_EQ(starts, (std::vector<size_t>{6, 3, 1, 0}));
}

TEST(Utf8RepairTest, HoldsBackOnlyBytesThatMayBecomeACharacter) {
  Utf8Repair repair;
  EXPECT_EQ(repair.Add("ok \xF0\x9F"), "ok ");
  EXPECT_EQ(repair.Add("\x98"), "");
  EXPECT_EQ(repair.Add("\x80!"), "\U0001F600!");
  EXPECT_EQ(repair.Flush(), "");
}

TEST(Utf8RepairTest, EachMaximalBadPartBecomesOneReplacementAtOnce) {
  Utf8Repair repair;
  EXPECT_EQ(repair.Add("\xE4\xBD"), "");
  EXPECT_EQ(repair.Add("A\xFF\x80"), "\uFFFD\x41\uFFFD\uFFFD");
  EXPECT_EQ(repair.Add("\xE0\x80"), "\uFFFD\uFFFD");  // E0 80 can begin no character
  EXPECT_EQ(repair.Add("\xF0\x9F\x98"), "");
  EXPECT_EQ(repair.Flush(), "\uFFFD");
  EXPECT_EQ(repair.Flush(), "");
}

}  // namespace
}  // namespace tessera::text
