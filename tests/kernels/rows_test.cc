#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/kernels/lab.h"

namespace tessera::kernels {
namespace {

class RowsTest : public ::testing::TestWithParam<std::string> {};

constexpr int64_t kSizes[] = {1, 7, 16, 31, 64, 100};

TEST_P(RowsTest, UploadConvertsEveryDtypeExactlyFromAnyAddress) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t cols : kSizes) {
      Lab lab(GetParam());
      Floats values = Random(3 * cols, 1);
      values[0] = 1e-7f;  // subnormal in f16
      values[1] = -0.0f;
      std::vector<std::byte> storage;
      const DeviceView out = lab.Out(3, cols, 2);
      lab.backend().Upload(Unaligned(values, {3, cols}, dtype, storage), out);
      ExpectSameBits(lab.Get(out), Rounded(values, dtype),
                     absl::StrCat(std::string(Name(dtype)), " ", cols));
    }
  }
}

TEST_P(RowsTest, EmbedTokensTakesRowsOfAMatrixAndLeavesNegativeIdsAlone) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t cols : kSizes) {
      Lab lab(GetParam());
      const int64_t n = 70;
      const Floats table = Random(n * cols, 2), before = Random(5 * cols, 3);
      const std::vector<int32_t> ids = {69, -1, 0, 33, 32};
      const DeviceView out = lab.Put(before, 5, cols, 1);
      lab.backend().EmbedTokens(*lab.Matrix(table, n, cols, dtype), lab.Keep(ids), out);
      const Floats rounded = Rounded(table, dtype);
      Floats expected = before;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0) continue;
        std::copy_n(rounded.begin() + ids[i] * cols, cols, expected.begin() + i * cols);
      }
      ExpectSameBits(lab.Get(out), expected, absl::StrCat(std::string(Name(dtype)), " ", cols));
    }
  }
}

TEST_P(RowsTest, CopyRowsAndAddRowsTouchTheRowsTheyName) {
  for (const int64_t cols : kSizes) {
    Lab lab(GetParam());
    const Floats source = Random(4 * cols, 1), target = Random(3 * cols, 2);
    const DeviceView x = lab.Put(source, 4, cols, 1), out = lab.Put(target, 3, cols, 2);
    lab.backend().CopyRows(x, lab.Keep({3, 0}), out, lab.Keep({0, 2}));
    lab.backend().AddRows(out, x, lab.Keep({2, 2, 1}));
    Floats expected = target;
    std::copy_n(source.begin() + 3 * cols, cols, expected.begin());
    std::copy_n(source.begin(), cols, expected.begin() + 2 * cols);
    const int64_t added[] = {2, 2, 1};
    for (int64_t i = 0; i < 3 * cols; ++i) expected[i] += source[added[i / cols] * cols + i % cols];
    ExpectSameBits(lab.Get(out), expected, absl::StrCat("columns ", cols));
  }
}

// Rounding of a sum of `cols` squares, a root and three products; for LayerNorm the mean's own
// rounding is amplified by 1 / deviation.
double NormBound(int64_t cols, double value, double amplified) {
  return kUnitRoundoff *
         ((static_cast<double>(cols) + 8) * (std::abs(value) + amplified) + std::abs(value));
}

TEST_P(RowsTest, RmsNormDividesByTheRootOfTheMeanSquare) {
  for (const int64_t cols : kSizes) {
    for (const bool in_place : {false, true}) {
      Lab lab(GetParam());
      const int64_t rows = 3;
      const Floats x = Random(rows * cols, 1), weight = Random(cols, 2);
      const DeviceView from = lab.Put(x, rows, cols, 1);
      const DeviceView out = in_place ? from : lab.Out(rows, cols, 2);
      lab.backend().RmsNorm(from, *lab.Vector(weight, DType::kF16), 1e-5f, out);
      const Floats w = Rounded(weight, DType::kF16);
      Floats expected;
      std::vector<double> bound;
      for (int64_t i = 0; i < rows * cols; ++i) {
        double square = 0;
        for (int64_t j = 0; j < cols; ++j) {
          square += double{x[i / cols * cols + j]} * double{x[i / cols * cols + j]};
        }
        const double y = x[i] / std::sqrt(square / static_cast<double>(cols) + double{1e-5f}) *
                         double{w[i % cols]};
        expected.push_back(static_cast<float>(y));
        bound.push_back(NormBound(cols, y, 0));
      }
      ExpectWithin(lab.Get(out), expected, bound, absl::StrCat("columns ", cols));
    }
  }
}

TEST_P(RowsTest, LayerNormCentersScalesAndShifts) {
  for (const int64_t cols : kSizes) {
    Lab lab(GetParam());
    const int64_t rows = 3;
    Floats x = Random(rows * cols, 1);
    for (float& value : x) value += 3;  // a mean that is not 0
    const Floats weight = Random(cols, 2), bias = Random(cols, 3);
    const DeviceView out = lab.Out(rows, cols, 2);
    lab.backend().LayerNorm(lab.Put(x, rows, cols, 3), *lab.Vector(weight), *lab.Vector(bias),
                            1e-5f, out);
    Floats expected;
    std::vector<double> bound;
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float* row = x.data() + i / cols * cols;
      double mean = 0, variance = 0;
      for (int64_t j = 0; j < cols; ++j) mean += double{row[j]} / static_cast<double>(cols);
      for (int64_t j = 0; j < cols; ++j) {
        variance += (row[j] - mean) * (row[j] - mean) / static_cast<double>(cols);
      }
      const double factor = double{weight[i % cols]} / std::sqrt(variance + double{1e-5f});
      const double y = (x[i] - mean) * factor + double{bias[i % cols]};
      expected.push_back(static_cast<float>(y));
      bound.push_back(NormBound(cols, y, std::abs(factor) * (std::abs(mean) + 4)));
    }
    ExpectWithin(lab.Get(out), expected, bound, absl::StrCat("columns ", cols));
  }
}

TEST_P(RowsTest, RotaryAnglesDealAxesAndSetsAndScale) {
  Lab lab(GetParam());
  const int64_t half = 6;
  const Floats frequency = Random(2 * half, 1);
  const std::vector<int32_t> positions[3] = {{5, 900}, {7, 2}, {11, 3}};
  const std::vector<int32_t> sets = {1, 0}, axis_of = {0, 1, 1, 2, 2, 2};
  RotaryAnglesParams params;
  params.inverse_frequency = lab.KeepFloats(frequency);
  params.frequency_set = lab.Keep(sets);
  for (int axis = 0; axis < 3; ++axis) params.positions[axis] = lab.Keep(positions[axis]);
  params.sections = lab.Keep({1, 2, 3});
  params.attention_scale = 1.5f;
  params.cos = lab.Out(2, half, 1);
  params.sin = lab.Out(2, half, 2);
  lab.backend().RotaryAngles(params);
  Floats cos, sin;
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t c = 0; c < half; ++c) {
      const float theta =
          static_cast<float>(positions[axis_of[c]][t]) * frequency[sets[t] * half + c];
      cos.push_back(static_cast<float>(1.5 * std::cos(double{theta})));
      sin.push_back(static_cast<float>(1.5 * std::sin(double{theta})));
    }
  }
  ExpectSameBits(lab.Get(params.cos), cos, "cosines");
  ExpectSameBits(lab.Get(params.sin), sin, "sines");
}

TEST_P(RowsTest, RotaryTurnsQueriesByHalves) {
  for (const int head_dim : {2, 16, 34, 64}) {
    Lab lab(GetParam());
    const int64_t tokens = 3, heads = 2, half = head_dim / 2;
    const Floats q = Random(tokens * heads * head_dim, 1), theta = Random(tokens * half, 2);
    Floats cos, sin;
    for (const float t : theta) cos.push_back(std::cos(t)), sin.push_back(std::sin(t));
    RotaryKvParams params;
    params.q = lab.Put(q, tokens, heads * head_dim, 1);
    params.k = params.v = lab.Put(Random(tokens * head_dim, 3), tokens, head_dim);
    params.cos = lab.Put(cos, tokens, half, 1);
    params.sin = lab.Put(sin, tokens, half, 2);
    params.cache = lab.Cache({.layers = 1, .kv_heads = 1, .head_dim = head_dim, .blocks = 1});
    params.slots = lab.Keep({4, 0, 15});
    lab.backend().RotaryKvWrite(params);
    Floats expected;
    std::vector<double> bound;
    for (int64_t i = 0; i < tokens * heads * head_dim; ++i) {
      const int64_t t = i / (heads * head_dim), d = i % head_dim, c = d % half;
      const double a = q[d < half ? i : i - half], b = q[d < half ? i + half : i];
      const double cosine = cos[t * half + c], sine = sin[t * half + c];
      expected.push_back(
          static_cast<float>(d < half ? a * cosine - b * sine : b * cosine + a * sine));
      bound.push_back(3 * kUnitRoundoff * (std::abs(a) + std::abs(b)));
    }
    ExpectWithin(lab.Get(params.q), expected, bound, absl::StrCat("head_dim ", head_dim));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RowsTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::kernels
