#include "common/base/status_macros.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/base/check.h"

namespace tessera::base {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(bool ok) {
  if (!ok) return absl::NotFoundError("gone");
  return std::make_unique<int>(7);
}

absl::StatusOr<int> Use(bool first, bool second) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> value, Make(first));
  RETURN_IF_ERROR(Make(second).status());
  return *value;
}

TEST(StatusMacrosTest, PassErrorsOnAndUnwrapValues) {
  EXPECT_EQ(*Use(true, true), 7);
  EXPECT_EQ(Use(false, true).status(), absl::NotFoundError("gone"));
  EXPECT_EQ(Use(true, false).status(), absl::NotFoundError("gone"));
}

TEST(CheckDeathTest, SaysWhatFailedWithItsValues) {
  EXPECT_DEATH(CHECK(1 == 2), "CHECK failed: 1 == 2 at .*status_macros_test.cc");
  const int four = 4;
  EXPECT_DEATH(CHECK_LT(four, 2 + 1), "four < 2 \\+ 1 \\(4 vs 3\\)");
  CHECK_EQ(four, 4);
}

}  // namespace
}  // namespace tessera::base
