#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/targets.h"
// After targets.h:
#include "hwy/targets.h"
#include "tests/kernels/lab.h"
#include "tests/kernels/paged_case.h"

// "The same answer": equal bits alone, in a batch, in chunks, and on any number of threads.
namespace tessera::kernels {
namespace {

class SameAnswerTest : public ::testing::TestWithParam<std::string> {};

constexpr int kThreads[] = {1, 2, 3};

// All the row-wise ops in a row over x [rows, 40]: norms, products with every epilogue, gating.
Floats RunRows(const Floats& x, int64_t rows, Lab& lab) {
  const int64_t k = 40, n = 75;
  const DeviceView in = lab.Put(x, rows, k), h = lab.Out(rows, k), out = lab.Out(rows, k);
  const DeviceView gate = lab.Out(rows, n), up = lab.Out(rows, n);
  lab.backend().LayerNorm(in, *lab.Vector(Random(k, 1)), *lab.Vector(Random(k, 2)), 1e-5f, h);
  const DeviceVector* bias = lab.Vector(Random(n, 3));
  const MatMulOut outs[] = {{lab.Matrix(Random(n * k, 4), n, k, DType::kF16), bias, gate},
                            {lab.Matrix(Random(n * k, 5), n, k, DType::kBF16), nullptr, up}};
  lab.backend().MatMul({h, outs, Activation::kGelu});
  lab.backend().GatedActivation(gate, up, Activation::kSilu, gate);
  lab.backend().RmsNorm(in, *lab.Vector(Random(k, 6)), 1e-5f, out);
  const MatMulOut down[] = {{lab.Matrix(Random(k * n, 7), k, n), nullptr, out}};
  lab.backend().MatMul({gate, down, Activation::kNone, true});
  return lab.Get(out);
}

TEST_P(SameAnswerTest, RowsAloneAndInBatchesOfEverySize) {
  const int64_t k = 40, most = 30;
  const Floats x = Random(most * k, 20);
  Lab whole(GetParam(), 1);
  const Floats expected = RunRows(x, most, whole);
  for (const int threads : kThreads) {
    for (int64_t rows = 1; rows <= most; ++rows) {
      Lab lab(GetParam(), threads);
      const Floats part(x.begin(), x.begin() + rows * k);
      ExpectSameBits(RunRows(part, rows, lab), {expected.begin(), expected.begin() + rows * k},
                     absl::StrCat(rows, " rows, ", threads, " threads"));
    }
  }
}

TEST_P(SameAnswerTest, SequencesAloneAndInABatch) {
  for (const PagedCase& c : PagedCases()) {
    Lab whole(GetParam(), 1);
    const Floats expected = RunPaged(c, whole);
    for (const int threads : kThreads) {
      Lab lab(GetParam(), threads);
      ExpectSameBits(RunPaged(c, lab), expected, absl::StrCat(c.Name(), ", ", threads, " threads"));
    }
    size_t at = 0;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      Lab lab(GetParam(), 2);
      const Floats alone = RunChunked(c, s, {c.sequences[s].context}, lab);
      ExpectSameBits(alone, {expected.begin() + at, expected.begin() + at + alone.size()},
                     absl::StrCat(c.Name(), ", sequence ", s, " alone"));
      at += alone.size();
    }
  }
}

TEST_P(SameAnswerTest, ChunksWithABorderAnywhere) {
  PagedCase c;
  c.heads = 3;
  c.kv_heads = 1;
  c.sequences = {{90, 90}};
  for (const DType dtype : {DType::kF16, DType::kI8}) {
    c.dtype = dtype;
    c.zero_point = dtype == DType::kI8;
    Lab whole(GetParam(), 1);
    const Floats expected = RunPaged(c, whole);
    for (int64_t border = 1; border < 90; ++border) {
      Lab lab(GetParam(), 1 + static_cast<int>(border % 3));
      ExpectSameBits(RunChunked(c, 0, {border, 90}, lab), expected,
                     absl::StrCat(c.Name(), ", border at ", border));
    }
    std::vector<int64_t> one_by_one;
    for (int64_t i = 1; i <= 90; ++i) one_by_one.push_back(i);
    Lab lab(GetParam(), 2);
    ExpectSameBits(RunChunked(c, 0, one_by_one, lab), expected,
                   absl::StrCat(c.Name(), ", token by token"));
  }
}

Floats RunPacked(int segments, int64_t rows, int threads, const std::string& name) {
  Lab lab(name, threads);
  const int heads = 3, head_dim = 20;
  const int64_t cols = heads * head_dim, all = segments * rows;
  const Floats q = Random(rows * cols, 1), k = Random(rows * cols, 2), v = Random(rows * cols, 3);
  auto repeat = [&](const Floats& one) {  // the first segment, then others
    Floats out = one;
    const Floats rest = Random((all - rows) * cols, 4);
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
  };
  std::vector<int32_t> begin;
  for (int s = 0; s <= segments; ++s) begin.push_back(static_cast<int32_t>(s * rows));
  PackedAttentionParams params;
  params.q = lab.Put(repeat(q), all, cols);
  params.k = lab.Put(repeat(k), all, cols);
  params.v = lab.Put(repeat(v), all, cols);
  params.out = lab.Out(all, cols);
  params.heads = heads;
  params.scale = 0.2f;
  params.query_begin = params.key_begin = lab.Keep(begin);
  lab.backend().PackedAttention(params);
  Floats out = lab.Get(params.out);
  out.resize(rows * cols);
  return out;
}

TEST_P(SameAnswerTest, PicturesAloneAndInABatch) {
  const Floats expected = RunPacked(1, 77, 1, GetParam());
  for (const int threads : kThreads) {
    ExpectSameBits(RunPacked(1, 77, threads, GetParam()), expected,
                   absl::StrCat("alone, ", threads, " threads"));
    ExpectSameBits(RunPacked(3, 77, threads, GetParam()), expected,
                   absl::StrCat("first of three, ", threads, " threads"));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SameAnswerTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

// Every instruction set of this machine.
class TargetsTest : public ::testing::Test {
 protected:
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  static std::vector<Floats> RunAll() {
    std::vector<Floats> out;
    Lab rows("cpu");
    out.push_back(RunRows(Random(30 * 40, 20), 30, rows));
    for (const PagedCase& c : PagedCases()) {
      Lab lab("cpu");
      out.push_back(RunPaged(c, lab));
    }
    out.push_back(RunPacked(2, 77, 2, "cpu"));
    return out;
  }
};

TEST_F(TargetsTest, EveryTargetWithFusedProductsGivesTheSameBits) {
  std::vector<Floats> expected;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target == HWY_SCALAR) continue;
    hwy::SetSupportedTargetsForTest(target);
    Lab lab("cpu");
    EXPECT_NE(lab.backend().name().find(hwy::TargetName(target)), std::string::npos)
        << lab.backend().name();
    const std::vector<Floats> actual = RunAll();
    if (expected.empty()) expected = actual;
    for (size_t i = 0; i < actual.size(); ++i) {
      ExpectSameBits(actual[i], expected[i], absl::StrCat(hwy::TargetName(target), ", part ", i));
    }
  }
}

TEST_F(TargetsTest, TheBaselineAgreesWithinRounding) {
  const std::vector<Floats> expected = RunAll();
  hwy::SetSupportedTargetsForTest(HWY_SCALAR);
  const std::vector<Floats> actual = RunAll();
  const std::vector<PagedCase> cases = PagedCases();
  for (size_t i = 0; i < actual.size(); ++i) {
    const bool codes = i >= 1 && i <= cases.size() && cases[i - 1].dtype == DType::kI8;
    // Part 0: two products in a row, each k <= 75 terms of size about 1, with sums of |x||w| below
    // 75 * 4; the others: weighted means of values below 5, in f16 where a key may round elsewhere.
    double bound = i == 0 ? 2 * 75 * 75 * 16 * kUnitRoundoff : 0x1p-11 * 40;
    if (codes) bound += CodeBound(cases[i - 1], 1);
    ExpectWithin(actual[i], expected[i], {bound}, absl::StrCat("part ", i));
  }
}

}  // namespace
}  // namespace tessera::kernels
