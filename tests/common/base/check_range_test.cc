#include "common/base/check_range.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/error.h"

namespace tessera::base {
namespace {

TEST(CheckRangeTest, BothEndsAreInAndWhatLiesBeyondIsNamedWithTheRange) {
  EXPECT_TRUE(CheckRange("threads", 1, 1, 64).ok());
  EXPECT_TRUE(CheckRange("threads", 64, 1, 64).ok());
  for (const int64_t value : {int64_t{0}, int64_t{65}, INT64_MIN, INT64_MAX}) {
    const absl::Status status = CheckRange("threads", value, 1, 64);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(FieldOf(status), "threads");
    EXPECT_EQ(ReasonOf(status), "BAD_OPTION");
    EXPECT_EQ(status.message(), "threads = " + std::to_string(value) + "; it must be 1..64");
  }
}

TEST(CheckShareTest, IsAboveZeroAndAtMostOne) {
  EXPECT_TRUE(CheckShare("tenant_share", 1).ok());
  EXPECT_TRUE(CheckShare("tenant_share", 1e-9).ok());
  for (const double value : {0.0, -0.5, 1.001, std::nan("")}) {
    const absl::Status status = CheckShare("tenant_share", value);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << value;
    EXPECT_EQ(FieldOf(status), "tenant_share");
    EXPECT_EQ(ReasonOf(status), "BAD_OPTION");
  }
  EXPECT_EQ(CheckShare("tenant_share", 1.5).message(),
            "tenant_share = 1.5; it must be above 0 and at most 1");
}

}  // namespace
}  // namespace tessera::base
