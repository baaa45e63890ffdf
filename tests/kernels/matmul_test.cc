#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/kernels/lab.h"

namespace tessera::kernels {
namespace {

struct Shapes {
  int64_t m, n, k;
};

class MatMulTest : public ::testing::TestWithParam<std::string> {};

// x w^T in double, and the bound of a chain of k fused products in f32 (Higham, Accuracy and
// Stability, section 3.1: k u sum |x||w|).
struct Product {
  std::vector<double> value, bound;
};
Product Multiply(const Floats& x, const Floats& w, const Shapes& s) {
  Product out;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = 0, size = 0;
      for (int64_t c = 0; c < s.k; ++c) {
        const double term = double{x[i * s.k + c]} * double{w[j * s.k + c]};
        sum += term;
        size += std::abs(term);
      }
      out.value.push_back(sum);
      out.bound.push_back(static_cast<double>(s.k) * kUnitRoundoff * size);
    }
  }
  return out;
}

TEST_P(MatMulTest, MultipliesEveryShapeAndDtype) {
  const Shapes shapes[] = {{1, 1, 1},    {1, 33, 7},   {2, 31, 16},  {3, 64, 17},
                           {5, 95, 48},  {7, 1, 100},  {12, 32, 64}, {13, 40, 33},
                           {25, 130, 5}, {1, 300, 96}, {8, 200, 40}, {2, 257, 64}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Shapes& s : shapes) {
      Lab lab(GetParam());
      const Floats x = Random(s.m * s.k, 1), raw = Random(s.n * s.k, 2);
      const Product product = Multiply(x, Rounded(raw, dtype), s);
      const MatMulOut outs[] = {{lab.Matrix(raw, s.n, s.k, dtype), nullptr, lab.Out(s.m, s.n, 3)}};
      lab.backend().MatMul({lab.Put(x, s.m, s.k, 1), outs});
      std::vector<double> bound = product.bound;
      for (size_t i = 0; i < bound.size(); ++i) {
        bound[i] += kUnitRoundoff * std::abs(product.value[i]);
      }
      ExpectWithin(lab.Get(outs[0].out), Floats(product.value.begin(), product.value.end()), bound,
                   absl::StrCat(std::string(Name(dtype)), " m ", s.m, " n ", s.n, " k ", s.k));
    }
  }
}

double Expected(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kQuickGelu:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return 0;
}

constexpr Activation kActivations[] = {Activation::kNone,      Activation::kRelu,
                                       Activation::kGelu,      Activation::kGeluTanh,
                                       Activation::kQuickGelu, Activation::kSilu};
// What backend.h's activations may be off by in f32, for an argument x.
double ActivationError(double x) { return 1e-6 * std::max(1.0, std::abs(x)); }

TEST_P(MatMulTest, AppliesBiasThenActivationThenResidual) {
  for (const Activation activation : kActivations) {
    for (const Shapes& s : {Shapes{1, 37, 24}, Shapes{14, 70, 24}}) {
      Lab lab(GetParam());
      const Floats x = Random(s.m * s.k, 3), w = Random(s.n * s.k, 4), bias = Random(s.n, 5);
      const Floats residual = Random(s.m * s.n, 6);
      const Product product = Multiply(x, w, s);
      const MatMulOut outs[] = {
          {lab.Matrix(w, s.n, s.k), lab.Vector(bias), lab.Put(residual, s.m, s.n, 2)}};
      lab.backend().MatMul({lab.Put(x, s.m, s.k), outs, activation, true});
      Floats expected;
      std::vector<double> bound;
      for (size_t i = 0; i < residual.size(); ++i) {
        const double sum = product.value[i] + double{bias[i % s.n]};
        const double y = Expected(activation, sum);
        expected.push_back(static_cast<float>(y + double{residual[i]}));
        // No slope of these functions is steeper than 1.13.
        bound.push_back(1.13 * (product.bound[i] + kUnitRoundoff * std::abs(sum)) +
                        ActivationError(sum) +
                        2 * kUnitRoundoff * (std::abs(y) + std::abs(double{residual[i]})));
      }
      ExpectWithin(lab.Get(outs[0].out), expected, bound,
                   absl::StrCat("activation ", static_cast<int>(activation), " m ", s.m));
    }
  }
}

TEST_P(MatMulTest, SeveralMatricesOfOneInputEqualOneByOne) {
  Lab lab(GetParam());
  const int64_t m = 5, k = 48, n[] = {96, 33, 32};
  const DeviceView x = lab.Put(Random(m * k, 7), m, k);
  std::vector<MatMulOut> together;
  for (int i = 0; i < 3; ++i) {
    const DType dtype = i == 1 ? DType::kBF16 : DType::kF16;
    together.push_back(
        {lab.Matrix(Random(n[i] * k, 8 + i), n[i], k, dtype), nullptr, lab.Out(m, n[i])});
  }
  lab.backend().MatMul({x, together});
  for (const MatMulOut& one : together) {
    const Floats all = lab.Get(one.out);
    lab.backend().MatMul({x, {&one, 1}});
    ExpectSameBits(lab.Get(one.out), all, "one of three");
  }
}

TEST_P(MatMulTest, ANanStaysInItsRowAndAnInfiniteWeightInItsColumn) {
  Lab lab(GetParam());
  const int64_t m = 14, n = 40, k = 20;
  Floats x = Random(m * k, 1), w = Random(n * k, 2);
  x[3 * k + 5] = std::nanf("");
  w[9 * k + 2] = INFINITY;
  const MatMulOut outs[] = {{lab.Matrix(w, n, k), nullptr, lab.Out(m, n)}};
  lab.backend().MatMul({lab.Put(x, m, k), outs, Activation::kSilu});
  const Floats y = lab.Get(outs[0].out);
  for (int64_t i = 0; i < m * n; ++i) {
    const bool touched = i / n == 3 || i % n == 9;
    if (i / n == 3) {
      EXPECT_TRUE(std::isnan(y[i])) << i;
    }
    if (!touched) {
      EXPECT_TRUE(std::isfinite(y[i])) << i;
    }
  }
}

TEST_P(MatMulTest, GatedActivationHoldsItsErrorBoundFromTailToTail) {
  Floats gate;
  for (float x = -12; x <= 12; x += 0.0078125f) gate.push_back(x);
  for (const float x : {-1e30f, -200.0f, -88.0f, -1e-30f, 0.0f, 1e-30f, 88.0f, 200.0f, 1e30f}) {
    gate.push_back(x);
  }
  for (const Activation activation : kActivations) {
    Lab lab(GetParam());
    const auto cols = static_cast<int64_t>(gate.size());
    const DeviceView x = lab.Put(gate, 1, cols, 2);
    const DeviceView up = lab.Put(Floats(gate.size(), 1.0f), 1, cols);
    lab.backend().GatedActivation(x, up, activation, x);
    Floats expected;
    std::vector<double> bound;
    for (const float g : gate) {
      expected.push_back(static_cast<float>(Expected(activation, g)));
      bound.push_back(ActivationError(g));
    }
    ExpectWithin(lab.Get(x), expected, bound,
                 absl::StrCat("activation ", static_cast<int>(activation)));
  }
}

TEST_P(MatMulTest, GatedActivationMultipliesByUp) {
  Lab lab(GetParam());
  const int64_t rows = 3, cols = 300;
  const Floats gate = Random(rows * cols, 1), up = Random(rows * cols, 2);
  const DeviceView out = lab.Out(rows, cols, 1);
  lab.backend().GatedActivation(lab.Put(gate, rows, cols, 5), lab.Put(up, rows, cols),
                                Activation::kSilu, out);
  Floats expected;
  std::vector<double> bound;
  for (size_t i = 0; i < gate.size(); ++i) {
    expected.push_back(static_cast<float>(Expected(Activation::kSilu, gate[i]) * double{up[i]}));
    bound.push_back(ActivationError(gate[i]) * std::abs(double{up[i]}) + 1e-30);
  }
  ExpectWithin(lab.Get(out), expected, bound, "silu(gate) * up");
}

INSTANTIATE_TEST_SUITE_P(Kernels, MatMulTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::kernels
