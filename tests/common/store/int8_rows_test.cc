#include "common/store/int8_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "common/base/error.h"
#include "common/store/record_codec.h"
#include "common/store/rows.h"

namespace tessera::store {
namespace {

std::vector<float> Gaussian(int64_t rows, int64_t width, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(rows * width));
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> Back(const std::vector<std::byte>& data, int64_t rows, int64_t width) {
  std::vector<float> out(static_cast<size_t>(rows * width));
  DequantizeRows(data, rows, width, absl::MakeSpan(out));
  return out;
}

double RelativeError(absl::Span<const float> a, absl::Span<const float> b) {
  double norm = 0;
  double lost = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    norm += double{a[i]} * a[i];
    lost += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  }
  return norm == 0 ? std::sqrt(lost) : std::sqrt(lost / norm);
}

EmbeddingRecord RecordOf(StoredRows stored, int64_t rows, int64_t width) {
  EmbeddingRecord record;
  record.key = EmbeddingKey(base::Sha256Of("picture"));
  record.dtype = stored.dtype;
  record.rows = rows;
  record.width = width;
  record.data = std::move(stored.data);
  return record;
}

TEST(Int8RowsTest, EveryRowStaysWithinOnePercentAndEveryValueWithinHalfAStep) {
  for (const int64_t width : {1, 127, 128, 129, 300, 4096}) {
    const std::vector<float> values = Gaussian(5, width);
    const auto stored = MakeRows(values, 5, width, DType::kI8);
    ASSERT_TRUE(stored.ok()) << stored.status();
    ASSERT_EQ(stored->dtype, DType::kI8) << width;
    ASSERT_EQ(stored->data.size(), RowBytes(DType::kI8, 5, width));
    EXPECT_EQ(RowBytes(DType::kI8, 5, width), 5 * (width + 4 * ScalesOf(width)));
    const std::vector<float> back = Back(stored->data, 5, width);
    for (int64_t row = 0; row < 5; ++row) {
      const absl::Span<const float> was(values.data() + row * width, width);
      const absl::Span<const float> is(back.data() + row * width, width);
      EXPECT_LE(RelativeError(was, is), 0.01) << width;
      for (int64_t begin = 0; begin < width; begin += kScaleColumns) {
        float most = 0;
        for (const float value : was.subspan(begin, kScaleColumns)) {
          most = std::max(most, std::fabs(value));
        }
        const size_t end = std::min(begin + kScaleColumns, width);
        for (size_t i = begin; i < end; ++i) {
          EXPECT_LE(std::fabs(was[i] - is[i]), most / 127 * 0.50001f);
        }
      }
    }
  }
}

TEST(Int8RowsTest, OneRowThatWouldLoseTooMuchKeepsThemAllInF16) {
  std::vector<float> values = Gaussian(4, 128);
  // Small ones beside a great one: they become 0, and all but it is lost.
  for (int i = 0; i < 128; ++i) values[2 * 128 + i] = i == 0 ? 100.0f : 0.35f;
  const auto stored = MakeRows(values, 4, 128, DType::kI8);
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->dtype, DType::kF16);
  EXPECT_EQ(stored->data, *RowsFromF32(values, 4, 128, DType::kF16));
}

TEST(Int8RowsTest, ZerosAndTheGreatestValuesAreKept) {
  std::vector<float> values(2 * 256, 0.0f);
  values[256] = 65504;
  values[257] = -65504;
  const auto stored = MakeRows(values, 2, 256, DType::kI8);
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->dtype, DType::kI8);
  EXPECT_TRUE(CheckRows(stored->data, 2, 256, DType::kI8).ok());
  const std::vector<float> back = Back(stored->data, 2, 256);
  EXPECT_FLOAT_EQ(back[256], 65504);
  EXPECT_FLOAT_EQ(back[257], -65504);
  EXPECT_EQ(back[0], 0);
  EXPECT_EQ(back[511], 0);
}

TEST(Int8RowsTest, WhatF16WouldRefuseIsRefused) {
  for (const float bad : {NAN, INFINITY, -INFINITY, 70000.0f}) {
    std::vector<float> values = Gaussian(2, 128);
    values[200] = bad;
    EXPECT_EQ(base::ReasonOf(MakeRows(values, 2, 128, DType::kI8).status()), "NONFINITE_ROWS");
  }
}

TEST(Int8RowsTest, EveryCodeAndScaleIsChecked) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kWidth = 200;
  const std::vector<std::byte> good =
      MakeRows(Gaussian(kRows, kWidth), kRows, kWidth, DType::kI8)->data;
  for (size_t at = 0; at < kRows * kWidth; ++at) {
    std::vector<std::byte> bad = good;
    bad[at] = std::byte{0x80};
    EXPECT_FALSE(CheckRows(bad, kRows, kWidth, DType::kI8).ok()) << at;
  }
  for (size_t scale = 0; scale < 6; ++scale) {
    for (const float value : {0.0f, -1.0f, NAN, INFINITY, 516.0f, 1e-40f}) {
      std::vector<std::byte> bad = good;
      std::memcpy(bad.data() + kRows * kWidth + 4 * scale, &value, 4);
      EXPECT_EQ(base::ReasonOf(CheckRows(bad, kRows, kWidth, DType::kI8)), "NONFINITE_ROWS")
          << scale << ": " << value;
    }
  }
}

TEST(Int8RowsTest, TheCodecKeepsThemAndRefusesBadOnes) {
  const auto stored = MakeRows(Gaussian(3, 200), 3, 200, DType::kI8);
  EmbeddingRecord record = RecordOf(*stored, 3, 200);
  const std::string bytes = *RecordCodec().Encode(record);
  const RecordExpectation expected = {
      .key = record.key, .dtype = DType::kI8, .rows = 3, .width = 200};
  const auto back = RecordCodec().Decode(bytes, expected);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->dtype, DType::kI8);
  EXPECT_EQ(back->data, record.data);
  RecordExpectation other = expected;
  other.dtype = DType::kF16;
  EXPECT_EQ(VerdictOf(RecordCodec().Decode(bytes, other).status()), RecordVerdict::kOtherShape);
  record.data[7] = std::byte{0x80};
  EXPECT_EQ(base::ReasonOf(RecordCodec().Encode(record).status()), "NONFINITE_ROWS");
}

TEST(Int8RowsTest, FloatRowsShareF16AndWidenInt8) {
  const std::vector<float> values = Gaussian(3, 200);
  const auto f16 = std::make_shared<const EmbeddingRecord>(
      RecordOf(*MakeRows(values, 3, 200, DType::kF16), 3, 200));
  const FloatRows shared = ToFloatRows(f16);
  EXPECT_EQ(shared.view.data, f16->data.data());
  EXPECT_EQ(shared.view.dtype, DType::kF16);
  EXPECT_EQ(f16.use_count(), 2);
  FloatRows wide;
  {
    const auto i8 = std::make_shared<const EmbeddingRecord>(
        RecordOf(*MakeRows(values, 3, 200, DType::kI8), 3, 200));
    ASSERT_EQ(i8->dtype, DType::kI8);
    wide = ToFloatRows(i8);
  }
  EXPECT_EQ(wide.view.dtype, DType::kF32);
  EXPECT_EQ(wide.view.shape, shared.view.shape);
  EXPECT_LE(RelativeError(values, ToFloats(wide.view)), 0.01);
}

}  // namespace
}  // namespace tessera::store
