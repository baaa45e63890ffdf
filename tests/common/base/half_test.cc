#include "common/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace tessera::base {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(HalfTest, EveryValueGoesThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if ((bits & 0x7fff) > 0x7c00) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      ASSERT_EQ(FloatToHalf(value), half);
    }
  }
}

TEST(HalfTest, ValuesAreThoseOfTheFormat) {
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xc000), -2.0f);
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(HalfToFloat(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(HalfToFloat(0x0400), std::ldexp(1.0f, -14));
  EXPECT_EQ(HalfToFloat(0x7c00), kInfinity);
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
}

// Between every two neighbours: the middle goes to the even one, a hair beside it to the nearer.
TEST(HalfTest, RoundsToNearestAndTiesToEven) {
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const float middle = (HalfToFloat(low) + HalfToFloat(high)) / 2;  // exact in f32
    ASSERT_EQ(FloatToHalf(middle), low % 2 == 0 ? low : high);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, kInfinity)), high);
    ASSERT_EQ(FloatToHalf(-middle), 0x8000 | (low % 2 == 0 ? low : high));
  }
}

TEST(HalfTest, WhatIsTooLargeBecomesInfinityAndWhatIsTinyZero) {
  EXPECT_EQ(FloatToHalf(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToHalf(kInfinity), 0x7c00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
}

TEST(Bf16Test, EveryValueGoesThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto bf16 = static_cast<uint16_t>(bits);
    const float value = Bf16ToFloat(bf16);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(value))));
    } else {
      ASSERT_EQ(FloatToBf16(value), bf16);
    }
  }
}

TEST(Bf16Test, RoundsToNearestAndTiesToEven) {
  for (uint32_t low = 0; low < 0x7f7f; ++low) {
    const uint32_t middle = (low << 16) | 0x8000;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle)), low % 2 == 0 ? low : low + 1);
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle - 1)), low);
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle + 1)), low + 1);
  }
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7f80);
  // A NaN whose payload lies in the bits that are cut stays a NaN.
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace tessera::base
