#include "services/decode/schedule/sampling_options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/base/error.h"

namespace tessera::decode {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

SamplingOptions With(float SamplingOptions::*field, float value) {
  SamplingOptions options;
  options.*field = value;
  return options;
}

void ExpectRefused(const SamplingOptions& options, const char* field) {
  const absl::Status status = Validate(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::FieldOf(status), field);
}

TEST(SamplingOptionsTest, DefaultsAndLimitsAreAllowed) {
  EXPECT_TRUE(Validate({}).ok());
  EXPECT_TRUE(Validate(With(&SamplingOptions::temperature, 2)).ok());
  EXPECT_TRUE(Validate(With(&SamplingOptions::temperature, 1e-9f)).ok());
  EXPECT_TRUE(Validate(With(&SamplingOptions::top_p, 1e-9f)).ok());
  EXPECT_TRUE(Validate(With(&SamplingOptions::min_p, 1)).ok());
  SamplingOptions options;
  options.top_k = 10'000'000'000;
  EXPECT_TRUE(Validate(options).ok());
}

TEST(SamplingOptionsTest, WhatIsNoSamplingIsRefusedByName) {
  for (const float bad : {-1.0f, 2.001f, 1e30f, kNan, kInf, -kInf}) {
    ExpectRefused(With(&SamplingOptions::temperature, bad), "options.temperature");
  }
  for (const float bad : {0.0f, -0.5f, 7.0f, kNan, kInf}) {
    ExpectRefused(With(&SamplingOptions::top_p, bad), "options.top_p");
  }
  for (const float bad : {-0.1f, 1.5f, kNan, -kInf}) {
    ExpectRefused(With(&SamplingOptions::min_p, bad), "options.min_p");
  }
  SamplingOptions options;
  options.top_k = -5;
  ExpectRefused(options, "options.top_k");
}

}  // namespace
}  // namespace tessera::decode
