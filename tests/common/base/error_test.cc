#include "common/base/error.h"

#include <gtest/gtest.h>

namespace tessera::base {
namespace {

TEST(ErrorTest, CarriesItsReasonFieldAndDelay) {
  const absl::Status error = Error(absl::StatusCode::kNotFound, "NO_SUCH_MODEL", "message");
  EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(error.message(), "message");
  EXPECT_EQ(ReasonOf(error), "NO_SUCH_MODEL");
  EXPECT_EQ(FieldOf(error), "");
  EXPECT_EQ(RetryOf(error), std::nullopt);
  const absl::Status field = BadField("options.top_p", "BAD_PARAMETER", "too large");
  EXPECT_EQ(field.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FieldOf(field), "options.top_p");
  EXPECT_EQ(ReasonOf(field), "BAD_PARAMETER");
  EXPECT_EQ(RetryOf(WithRetry(error, absl::Milliseconds(1500))), absl::Milliseconds(1500));
}

TEST(ErrorTest, ANewerDetailReplacesTheOlder) {
  const absl::Status error = WithReason(BadField("f", "OLD", "m"), "NEW");
  EXPECT_EQ(ReasonOf(error), "NEW");
  EXPECT_EQ(FieldOf(WithField(error, "g")), "g");
}

TEST(ErrorTest, AnnotateKeepsCodeAndDetails) {
  const absl::Status error =
      Annotate(WithRetry(BadField("f", "WHY", "what"), absl::Seconds(2)), "where");
  EXPECT_EQ(error.message(), "where: what");
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(error), "WHY");
  EXPECT_EQ(FieldOf(error), "f");
  EXPECT_EQ(RetryOf(error), absl::Seconds(2));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "where").ok());
}

TEST(ErrorTest, OkCarriesNothing) {
  EXPECT_EQ(ReasonOf(absl::OkStatus()), "");
  EXPECT_TRUE(WithReason(absl::OkStatus(), "WHY").ok());
  EXPECT_EQ(RetryOf(absl::OkStatus()), std::nullopt);
}

}  // namespace
}  // namespace tessera::base
