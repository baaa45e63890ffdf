#include "common/base/bytes.h"

#include <gtest/gtest.h>

namespace tessera::base {
namespace {

TEST(BytesTest, SizesAreReadWithTheirUnits) {
  EXPECT_EQ(*ParseBytes("123"), 123u);
  EXPECT_EQ(*ParseBytes("64MiB"), 64u << 20);
  EXPECT_EQ(*ParseBytes("1.5KiB"), 1536u);
  EXPECT_EQ(*ParseBytes("2MB"), 2'000'000u);
  EXPECT_EQ(*ParseBytes("7B"), 7u);
  EXPECT_EQ(*ParseBytes("0"), 0u);
}

TEST(BytesTest, WhatIsNoSizeIsRefused) {
  for (const char* text :
       {"", "MiB", "-1", "lots", "1 2", "nan", "inf", "1e30", "5XB", "0x", "40%"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(BytesTest, SizesReadWell) {
  EXPECT_EQ(BytesText(5), "5 B");
  EXPECT_EQ(BytesText(64u << 20), "64.0 MiB");
}

TEST(MemoryBudgetTest, ASizeCountsWhateverIsFree) {
  const MemoryBudget budget = ParseMemoryBudget("1.5KiB").value();
  EXPECT_EQ(budget.BytesOf(0), 1536u);
  EXPECT_EQ(budget.BytesOf(size_t{1} << 40), 1536u);
  EXPECT_EQ(budget.Text(), "1.5 KiB");
  EXPECT_EQ(ParseMemoryBudget("0").value().BytesOf(100), 0u);
}

TEST(MemoryBudgetTest, AShareIsOfWhatIsFree) {
  const MemoryBudget budget = ParseMemoryBudget("40%").value();
  EXPECT_EQ(budget.BytesOf(1000), 400u);
  EXPECT_EQ(budget.BytesOf(0), 0u);
  EXPECT_EQ(budget.Text(), "40%");
  EXPECT_EQ(ParseMemoryBudget("12.5%").value().BytesOf(1000), 125u);
  EXPECT_EQ(ParseMemoryBudget("100%").value().BytesOf(1000), 1000u);
}

TEST(MemoryBudgetTest, WhatIsNeitherSizeNorShareIsRefused) {
  for (const char* text :
       {"", "%", "0%", "-1%", "100.1%", "nan%", "inf%", "40%%", "40MiB%", "lots"}) {
    const absl::Status status = ParseMemoryBudget(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("40%"), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace tessera::base
