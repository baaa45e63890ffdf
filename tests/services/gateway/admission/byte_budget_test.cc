#include "services/gateway/admission/byte_budget.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "common/base/error.h"

namespace tessera::gateway {
namespace {

ByteBudget::Limits Of(size_t bytes, double tenant_share = 1, size_t least = 0) {
  return {.bytes = bytes,
          .tenant_share = tenant_share,
          .least = least,
          .full = base::Error(absl::StatusCode::kUnavailable, "FULL", "full")};
}

TEST(ByteBudgetTest, WhatIsTakenComesBack) {
  ByteBudget budget(Of(10));
  ByteBudget::Hold first = budget.For("a"), second = budget.For("b");
  EXPECT_TRUE(first.Grow(6).ok());
  EXPECT_EQ(base::ReasonOf(second.Grow(5)), "FULL");
  EXPECT_EQ(second.bytes(), 0u);
  EXPECT_TRUE(second.Grow(4).ok());
  EXPECT_TRUE(second.Grow(3).ok());  // it has them
  EXPECT_EQ(second.bytes(), 4u);
  first.Reset();
  EXPECT_TRUE(second.Grow(10).ok());
  EXPECT_FALSE(first.Grow(1).ok());
}

TEST(ByteBudgetTest, ATenantHasItsShareAndTheOthersTheRest) {
  ByteBudget budget(Of(10, 0.5));
  ByteBudget::Hold one = budget.For("a"), more = budget.For("a"), other = budget.For("b");
  EXPECT_TRUE(one.Grow(4).ok());
  EXPECT_TRUE(more.Grow(1).ok());
  const absl::Status status = more.Grow(2);
  EXPECT_EQ(base::ReasonOf(status), "QUOTA_EXCEEDED");
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_TRUE(base::RetryOf(status).has_value());
  EXPECT_TRUE(other.Grow(5).ok());
  one.Reset();
  EXPECT_TRUE(more.Grow(5).ok());
}

TEST(ByteBudgetTest, TheLargestMessageOfAClientFits) {
  ByteBudget budget(Of(10, 0.1, 12));
  ByteBudget::Hold hold = budget.For("a");
  EXPECT_TRUE(hold.Grow(12).ok());
  EXPECT_FALSE(hold.Grow(13).ok());
}

TEST(ByteBudgetTest, WhatIsHeldMovesAndOutlivesItsBudget) {
  std::optional<ByteBudget> budget(Of(10));
  ByteBudget::Hold first = budget->For("a");
  EXPECT_TRUE(first.Grow(7).ok());
  ByteBudget::Hold second = std::move(first);
  first = budget->For("a");
  EXPECT_FALSE(first.Grow(4).ok());
  second = ByteBudget::Hold();
  EXPECT_TRUE(first.Grow(4).ok());
  budget.reset();
  EXPECT_TRUE(first.Grow(10).ok());
}

TEST(ByteBudgetTest, AHoldOfNoBudgetGrows) {
  ByteBudget::Hold hold;
  EXPECT_TRUE(hold.Grow(size_t{1} << 40).ok());
}

}  // namespace
}  // namespace tessera::gateway
