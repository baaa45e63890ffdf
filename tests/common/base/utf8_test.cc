#include "common/base/utf8.h"

#include <gtest/gtest.h>

namespace tessera::base {
namespace {

TEST(Utf8Test, WhatIsGoodStaysAsItIs) {
  for (const char* good : {"", "a", "\u00e9\u20ac\U0001f600", "\u007f\u0080\u07ff\u0800\ud7ff"}) {
    EXPECT_EQ(ToUtf8(good), good);
  }
}

TEST(Utf8Test, EveryByteThatIsPartOfNoCharacterIsReplaced) {
  EXPECT_EQ(ToUtf8("a\xff"
                   "b"),
            "a\ufffd"
            "b");
  EXPECT_EQ(ToUtf8("\xe2\x82"), "\ufffd\ufffd");                        // cut
  EXPECT_EQ(ToUtf8("\xc0\x80"), "\ufffd\ufffd");                        // overlong
  EXPECT_EQ(ToUtf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");              // a surrogate
  EXPECT_EQ(ToUtf8("\xf4\x90\x80\x80!"), "\ufffd\ufffd\ufffd\ufffd!");  // above U+10FFFF
}

TEST(Utf8Test, AnExcerptIsCutBetweenCharactersAndSaysSo) {
  EXPECT_EQ(Excerpt("short", 5), "short");
  EXPECT_EQ(Excerpt("longer", 5), "lo...");
  EXPECT_EQ(Excerpt("\u00e9\u00e9\u00e9\u00e9", 6), "\u00e9...");
  EXPECT_EQ(Excerpt("\u00e9\u00e9\u00e9", 6), "\u00e9\u00e9\u00e9");
  EXPECT_EQ(Excerpt("\xff", 3), kReplacementCharacter);
  EXPECT_EQ(Excerpt("\xff\xff", 3), "...");
  EXPECT_EQ(Excerpt(std::string(1 << 20, 'x')), std::string(197, 'x') + "...");
}

}  // namespace
}  // namespace tessera::base
