#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/kernels/lab.h"
#include "tests/kernels/paged_case.h"

namespace tessera::kernels {
namespace {

class AttentionTest : public ::testing::TestWithParam<std::string> {};

double LargestOf(const Floats& values) {
  double largest = 0;
  for (const float x : values) largest = std::max(largest, std::abs(double{x}));
  return largest;
}

// How far attention in f32 may be off: a score is off by at most d u |q||k|, all weights by a
// factor of twice that, and a sum over `keys` values by keys u.
double AttentionBound(int head_dim, int64_t keys, double scale, double q, double k, double v) {
  const double score = scale * head_dim * q * k;
  return ((2 * (head_dim + 4) * score) + static_cast<double>(keys) + 16) * kUnitRoundoff * v;
}

TEST_P(AttentionTest, PagedEqualsReference) {
  for (PagedCase c : PagedCases()) {
    // Turned keys differ by rounding, and a code may then be another: keys that are not turned have
    // the same codes everywhere. A score and an output of codes are two sums, a code's and a
    // zero's.
    const bool codes = c.dtype == DType::kI8;
    c.turn = !codes;
    Lab lab(GetParam()), reference("reference");
    const Floats actual = RunPaged(c, lab), expected = RunPaged(c, reference);
    // Rounding a key to f16 gives another number only where the turned key differs by rounding.
    const double dtype = c.dtype == DType::kF16 ? 0x1p-11 * 8 : 0;
    const double rounding = AttentionBound(c.head_dim, c.MaxContext(), c.scale(), 5, 5, 5);
    const double bound = (codes ? 3 : 1) * rounding + dtype * 5;
    ExpectWithin(actual, expected, {bound}, c.Name());
  }
}

TEST_P(AttentionTest, PagedReferenceIsSoftmaxOfTheCausalPrefix) {
  // One head of one component, no rotation (angle 0): out_i = sum_j<=i softmax(q k_j) v_j.
  Lab lab(GetParam());
  const int64_t tokens = 20;
  PagedCase c;
  c.heads = c.kv_heads = 1;
  c.head_dim = 2;
  c.block_size = 4;
  c.dtype = DType::kF32;
  c.sequences = {{20, 20}};
  c.turn = false;
  const Floats actual = RunPaged(c, lab);
  const PagedInput in = MakePagedInput(c);
  Floats expected;
  for (int64_t i = 0; i < tokens; ++i) {
    for (int d = 0; d < 2; ++d) {
      double total = 0, sum = 0;
      for (int64_t j = 0; j <= i; ++j) {
        const double score = double{in.q[2 * i]} * double{in.k[2 * j]} +
                             double{in.q[2 * i + 1]} * double{in.k[2 * j + 1]};
        const double weight = std::exp(score * double{c.scale()});
        total += weight;
        sum += weight * double{in.v[2 * j + d]};
      }
      expected.push_back(static_cast<float>(sum / total));
    }
  }
  ExpectWithin(actual, expected, {AttentionBound(2, tokens, 0.71, 4, 4, 4)}, "causal softmax");
}

TEST_P(AttentionTest, PackedEqualsSoftmaxInsideEachSegment) {
  struct Case {
    int heads, head_dim;
    std::vector<int32_t> query, key;
  };
  const Case cases[] = {{3, 16, {0, 17}, {0, 17}},
                        {1, 1, {0, 1}, {0, 1}},
                        {3, 64, {0, 5, 5, 30}, {0, 5, 6, 30}},
                        {2, 20, {0, 2, 4, 100}, {0, 70, 71, 80}},
                        {2, 33, {0, 65}, {0, 130}}};
  for (const Case& c : cases) {
    Lab lab(GetParam());
    const int64_t rows = c.query.back(), keys = c.key.back(), cols = c.heads * c.head_dim;
    const Floats q = Random(rows * cols, 1), k = Random(keys * cols, 2), v = Random(keys * cols, 3);
    const float scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
    const DeviceView out = lab.Out(rows, cols, 2);
    PackedAttentionParams params;
    params.q = lab.Put(q, rows, cols, 1);
    params.k = lab.Put(k, keys, cols, 3);
    params.v = lab.Put(v, keys, cols);
    params.out = out;
    params.heads = c.heads;
    params.scale = scale;
    params.query_begin = lab.Keep(c.query);
    params.key_begin = lab.Keep(c.key);
    lab.backend().PackedAttention(params);
    Floats expected(q.size());
    for (size_t s = 0; s + 1 < c.query.size(); ++s) {
      for (int64_t i = c.query[s]; i < c.query[s + 1]; ++i) {
        for (int h = 0; h < c.heads; ++h) {
          const int64_t at = h * c.head_dim;
          std::vector<double> sum(c.head_dim);
          double total = 0;
          for (int64_t j = c.key[s]; j < c.key[s + 1]; ++j) {
            double score = 0;
            for (int d = 0; d < c.head_dim; ++d) {
              score += double{q[i * cols + at + d]} * double{k[j * cols + at + d]};
            }
            const double weight = std::exp(score * double{scale});
            total += weight;
            for (int d = 0; d < c.head_dim; ++d) sum[d] += weight * double{v[j * cols + at + d]};
          }
          for (int d = 0; d < c.head_dim; ++d) {
            expected[i * cols + at + d] = static_cast<float>(sum[d] / total);
          }
        }
      }
    }
    const double bound =
        AttentionBound(c.head_dim, keys, double{scale}, LargestOf(q), LargestOf(k), LargestOf(v));
    ExpectWithin(lab.Get(out), expected, {bound}, absl::StrCat("head_dim ", c.head_dim));
  }
}

TEST_P(AttentionTest, UnusedSlotsNeverLeak) {
  for (const PagedCase& c : PagedCases()) {
    Lab clean(GetParam()), poisoned(GetParam());
    const Floats expected = RunPaged(c, clean);
    const Floats actual = RunPaged(c, poisoned, /*poison=*/true);
    ExpectSameBits(actual, expected, absl::StrCat("NaN in unused slots, ", c.Name()));
  }
}

// Causal attention of 90 tokens, one of which is bad: the rows before it stay finite, and those
// from it on are not, where `must_show`.
void ExpectSeenFrom(const PagedCase& c, const std::string& backend, bool must_show) {
  Lab lab(backend);
  const Floats out = RunPaged(c, lab);
  const int64_t first = c.bad_token * c.heads * c.head_dim;
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    const bool finite = std::isfinite(out[i]);
    const bool right = i < first ? finite : !finite || !must_show;
    ASSERT_TRUE(right) << c.Name() << ", token " << c.bad_token << " is " << c.bad << ", element "
                       << i << " is " << out[i];
  }
}

TEST_P(AttentionTest, ANanOrAnInfinityReachesTheRowsThatSeeIt) {
  PagedCase c;
  c.sequences = {{90, 90}};
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kI8}) {
    c.dtype = dtype;
    for (const int64_t token : {0, 10, 63, 70, 89}) {
      c.bad_token = token;
      c.zero_point = dtype == DType::kI8 && token % 2 == 0;
      for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
        c.bad = bad;
        c.bad_value = true;
        ExpectSeenFrom(c, GetParam(), true);
        c.bad_value = false;
        // An infinite key of f16 or f32 may have none of the weight.
        ExpectSeenFrom(c, GetParam(), std::isnan(bad) || dtype == DType::kI8);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::kernels
