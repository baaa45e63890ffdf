#include "tools/flags.h"

#include <gtest/gtest.h>

namespace tessera::tools {
namespace {

TEST(FlagsTest, SizesAreReadWithTheirUnits) {
  EXPECT_EQ(*ParseBytes("123"), 123u);
  EXPECT_EQ(*ParseBytes("64MiB"), 64u << 20);
  EXPECT_EQ(*ParseBytes("1.5KiB"), 1536u);
  EXPECT_EQ(*ParseBytes("2MB"), 2'000'000u);
  EXPECT_EQ(*ParseBytes("7B"), 7u);
  EXPECT_EQ(*ParseBytes("0"), 0u);
}

TEST(FlagsTest, WhatIsNoSizeIsRefused) {
  for (const char* text : {"", "MiB", "-1", "lots", "1 2", "nan", "inf", "1e30", "5XB", "0x"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(FlagsTest, SizesReadWell) {
  EXPECT_EQ(BytesText(5), "5 B");
  EXPECT_EQ(BytesText(64u << 20), "64.0 MiB");
}

}  // namespace
}  // namespace tessera::tools
