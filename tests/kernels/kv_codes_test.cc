#include "kernels/host/kv_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/half.h"
#include "tests/kernels/lab.h"
#include "tests/kernels/paged_case.h"

// Keys and values in int8: what is stored, how much it takes, and what attention reads.
namespace tessera::kernels {
namespace {

constexpr double kMostHalf = 65504;

float ScaleOf(float least, float largest, bool zero_point = false) {
  return base::HalfToFloat(ScaleFor(least, largest, true, zero_point).scale);
}
float ZeroOf(float least, float largest) {
  return base::HalfToFloat(ScaleFor(least, largest, true, true).zero);
}

TEST(ScaleForTest, IsTheLeastHalfThatReachesTheLargestCode) {
  EXPECT_EQ(ScaleOf(-127, 3), 1);
  EXPECT_EQ(ScaleOf(0, 254), 2);
  EXPECT_EQ(ScaleOf(-127 * 1024, 0), 1024);
  EXPECT_EQ(ScaleOf(0, 127 * 1.0001f), 1 + 0x1p-10f);  // the next f16 number after 1
  EXPECT_EQ(ScaleOf(0, 0), 0);
  EXPECT_EQ(ScaleOf(0, 127 * 0x1p-24f), 0x1p-24f);  // the least f16 number above 0
  EXPECT_EQ(ScaleOf(0, 1e-20f), 0x1p-24f);
  EXPECT_EQ(ScaleOf(-127 * 65504.0f, 1), 65504);
  EXPECT_EQ(ScaleOf(-1e30f, 1), 65504);
}

TEST(ScaleForTest, AZeroIsTheMiddleOfTheRange) {
  EXPECT_EQ(ZeroOf(-2, 6), 2);
  EXPECT_EQ(ScaleOf(2, 2 + 254, true), 1);
  EXPECT_EQ(ZeroOf(7, 7), 7);
  EXPECT_EQ(ScaleOf(7, 7, true), 0);
  EXPECT_EQ(ZeroOf(3e38f, 3.2e38f), 65504);
  EXPECT_EQ(ZeroOf(-3.4e38f, 3.4e38f), 0);
  EXPECT_EQ(ScaleOf(3e38f, 3.2e38f, true), 65504);
}

TEST(ScaleForTest, WhatIsNotFiniteHasANanScaleAndAFiniteZero) {
  for (const bool zero_point : {false, true}) {
    const KvScale bits = ScaleFor(-1, 1, false, zero_point);
    EXPECT_TRUE(std::isnan(base::HalfToFloat(bits.scale)));
    EXPECT_EQ(bits.zero, 0);
  }
}

// kv_codes.h in double: the numbers that `x` is stored as.
std::vector<double> Decoded(const float* x, int head_dim, bool zero_point, double* scale_out) {
  const auto [least, largest] = std::minmax_element(x, x + head_dim);
  double zero = 0;
  if (zero_point) {
    const double middle = (double{*least} + double{*largest}) / 2;
    zero = base::HalfToFloat(
        base::FloatToHalf(static_cast<float>(std::clamp(middle, -kMostHalf, kMostHalf))));
  }
  const double furthest = std::max(*largest - zero, zero - *least);
  const double wanted = std::min(furthest / 127, kMostHalf);
  double scale = 0;  // walks up the f16 numbers near it
  const int start = base::FloatToHalf(static_cast<float>(wanted)) - 2;
  for (int bits = std::max(0, start); scale < wanted; ++bits) {
    scale = base::HalfToFloat(static_cast<uint16_t>(bits));
  }
  std::vector<double> out;
  for (int d = 0; d < head_dim; ++d) {
    const double code = scale > 0 ? std::nearbyint((x[d] - zero) / scale) : 0;
    out.push_back(zero + scale * std::clamp(code, -127.0, 127.0));
  }
  *scale_out = scale;
  return out;
}

struct Vector {
  std::string name;
  Floats x;
};

std::vector<Vector> Vectors(int head_dim) {
  std::vector<Vector> out;
  out.push_back({"normal", Random(head_dim, 3)});
  out.push_back({"zero", Floats(head_dim, 0.0f)});
  out.push_back({"negative zero", Floats(head_dim, -0.0f)});
  out.push_back({"constant", Floats(head_dim, -3.25f)});
  out.push_back({"outlier", Random(head_dim, 4, 0.01f)});
  out.back().x[head_dim / 2] = -300;
  out.push_back({"shifted", Random(head_dim, 5)});
  for (float& x : out.back().x) x += 100;
  out.push_back({"subnormal scale", Random(head_dim, 6, 1e-4f)});
  out.push_back({"tiny", Random(head_dim, 7, 1e-9f)});
  out.push_back({"least", Floats(head_dim, std::numeric_limits<float>::denorm_min())});
  out.push_back({"large", Random(head_dim, 8, 1e6f)});
  out.push_back({"ties", Floats(head_dim, 0.5f)});
  for (int d = 0; d < head_dim; ++d) out.back().x[d] = 0.5f * static_cast<float>(d % 9 - 4);
  out.back().x[0] = 127;
  return out;
}

class KvCodesTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The value that a lone token's attention reads back after it was written as `x`.
  Floats ReadBack(const Floats& x, bool zero_point) {
    Lab lab(GetParam());
    const auto head_dim = static_cast<int64_t>(x.size());
    KvCacheSpec spec{.layers = 1, .kv_heads = 1, .head_dim = static_cast<int>(head_dim)};
    spec.blocks = 2;
    spec.dtype = DType::kI8;
    spec.zero_point = zero_point;
    const DeviceView q = lab.Put(Random(head_dim, 1), 1, head_dim), out = lab.Out(1, head_dim);
    const DeviceView k = lab.Put(Random(head_dim, 2), 1, head_dim), v = lab.Put(x, 1, head_dim);
    const DeviceView cos = lab.Put(Floats(head_dim / 2, 1.0f), 1, head_dim / 2);
    const DeviceView sin = lab.Put(Floats(head_dim / 2, 0.0f), 1, head_dim / 2);
    const KvCache* cache = lab.Cache(spec);
    lab.backend().RotaryKvWrite({q, k, v, cos, sin, cache, 0, lab.Keep({16})});
    lab.backend().PagedAttention(
        {q, out, cache, 0, 1, 1.0f, lab.Keep({0, 1}), lab.Keep({1}), lab.Keep({1}), 1});
    return lab.Get(out);
  }
};

constexpr int kHeadDims[] = {2, 20, 32, 34, 64, 80, 96, 126, 128};

TEST_P(KvCodesTest, AValueIsReadAsItsCodesSayWithinHalfAScale) {
  for (const int head_dim : kHeadDims) {
    for (const Vector& v : Vectors(head_dim)) {
      for (const bool zero_point : {false, true}) {
        double scale = 0;
        const std::vector<double> expected = Decoded(v.x.data(), head_dim, zero_point, &scale);
        const Floats actual = ReadBack(v.x, zero_point);
        for (int d = 0; d < head_dim; ++d) {
          const double size = std::abs(double{v.x[d]}) + 127 * scale;
          const std::string what = absl::StrCat(v.name, " ", head_dim, zero_point ? "z" : "", " ",
                                                d, ": ", v.x[d], " is ", actual[d]);
          // A quotient at a tie in double need not be one in f32: then the code is the next.
          EXPECT_NEAR(actual[d], v.x[d], scale / 2 + 4 * kUnitRoundoff * size) << what;
          EXPECT_NEAR(actual[d], expected[d], scale + 4 * kUnitRoundoff * size) << what;
        }
      }
    }
  }
}

TEST_P(KvCodesTest, CodesRoundToTheNearestEven) {
  Floats x = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
  EXPECT_EQ(ReadBack(x, false), (Floats{127, 0, 2, 2, 0, -2, -2, 126}));
  for (float& v : x) v += 1024;
  x[4] = x[5] = x[6] = 1024 - 127;
  EXPECT_EQ(ReadBack(x, true), (Floats{1151, 1024, 1026, 1026, 897, 897, 897, 1150}));
}

TEST_P(KvCodesTest, BeyondTheLargestScaleValuesSaturateAndStayFinite) {
  const float most = 127 * 65504.0f;
  Floats x = {1e7f, -3e38f, 65504, 0};
  EXPECT_EQ(ReadBack(x, false), (Floats{most, -most, 65504, 0}));
  x = {3e38f, 3.1e38f};
  EXPECT_EQ(ReadBack(x, true), (Floats{128 * 65504.0f, 128 * 65504.0f}));
}

TEST_P(KvCodesTest, AttentionIsThatOfTheStoredNumbers) {
  for (PagedCase c : PagedCases()) {
    if (c.dtype != DType::kI8) continue;
    c.turn = false;
    c.sequences.resize(1);  // its tokens are the first of the input
    const PagedInput in = MakePagedInput(c);
    const int64_t context = c.sequences[0].context, queries = c.sequences[0].queries;
    const int64_t kv_cols = c.kv_heads * c.head_dim, cols = c.heads * c.head_dim;
    std::vector<std::vector<double>> keys, values;  // [token * kv_heads + head]
    double scale = 0;
    for (int64_t at = 0; at < context * kv_cols; at += c.head_dim) {
      keys.push_back(Decoded(in.k.data() + at, c.head_dim, c.zero_point, &scale));
      values.push_back(Decoded(in.v.data() + at, c.head_dim, c.zero_point, &scale));
    }
    Floats expected;
    for (int64_t i = context - queries; i < context; ++i) {
      for (int h = 0; h < c.heads; ++h) {
        std::vector<double> sum(c.head_dim);
        double total = 0;
        for (int64_t j = 0; j <= i; ++j) {
          const int64_t at = j * c.kv_heads + h / (c.heads / c.kv_heads);
          const std::vector<double>&k = keys[at], &v = values[at];
          double score = 0;
          for (int d = 0; d < c.head_dim; ++d) {
            score += double{in.q[i * cols + h * c.head_dim + d]} * k[d];
          }
          const double weight = std::exp(score * double{c.scale()});
          total += weight;
          for (int d = 0; d < c.head_dim; ++d) sum[d] += weight * v[d];
        }
        for (const double s : sum) expected.push_back(static_cast<float>(s / total));
      }
    }
    Lab lab(GetParam());
    // As AttentionTest bounds it, with a code's and a zero's sum.
    const double score = double{c.scale()} * c.head_dim * 25;
    const double bound = 3 * (2 * (c.head_dim + 4) * score + context + 16) * kUnitRoundoff * 5;
    ExpectWithin(RunPaged(c, lab), expected, {bound}, c.Name());
  }
}

TEST_P(KvCodesTest, AnOutputIsOffByNoMoreThanTheScalesSay) {
  for (PagedCase c : PagedCases()) {
    if (c.dtype != DType::kI8) continue;
    Lab lab(GetParam()), exact("reference");
    const double bound = CodeBound(c, 0.5) + 0x1p-11;
    const Floats actual = RunPaged(c, lab);
    c.dtype = DType::kF32;
    c.zero_point = false;
    ExpectWithin(actual, RunPaged(c, exact), {bound}, c.Name());
  }
}

TEST_P(KvCodesTest, ABlockTakesAByteAnElementAndItsScales) {
  Lab lab(GetParam());
  for (const int head_dim : {32, 64, 80, 96, 128}) {
    KvCacheSpec spec{.layers = 3, .kv_heads = 5, .head_dim = head_dim, .blocks = 7};
    const auto heads = size_t{2} * 3 * 5 * 16, dim = static_cast<size_t>(head_dim);
    const size_t half = lab.backend().KvBytesPerBlock(spec) / 2;
    EXPECT_EQ(half, heads * dim);
    spec.dtype = DType::kI8;
    const size_t plain = lab.backend().KvBytesPerBlock(spec);
    EXPECT_EQ(plain, heads * (dim + 2));
    spec.zero_point = true;
    const size_t zeros = lab.backend().KvBytesPerBlock(spec);
    EXPECT_EQ(zeros, heads * (dim + 4));
    EXPECT_EQ(plain <= half * 104 / 100, head_dim >= 64) << head_dim;
    EXPECT_EQ(zeros <= half * 104 / 100, head_dim >= 128) << head_dim;
    const KvCache cache = *lab.backend().MakeKvCache(spec);
    EXPECT_EQ(lab.backend().memory().kv_cache, 7 * zeros);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KvCodesTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::kernels
