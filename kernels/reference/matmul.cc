#include <algorithm>
#include <vector>

#include "kernels/reference/activation.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/memory.h"

namespace tessera::kernels::reference {
namespace {

// Rows whose sums run side by side: each is still one chain over k.
constexpr int64_t kRows = 8;

struct Column {
  const std::vector<float>& weight;  // [k]
  double bias;
  int64_t index;
};

void MultiplyRows(const HostView& x, int64_t begin, const Column& column,
                  const MatMulParams& params, const HostView& out) {
  const int64_t rows = std::min(kRows, x.rows - begin);
  const float* row[kRows];
  for (int64_t r = 0; r < kRows; ++r) row[r] = x.row(begin + std::min(r, rows - 1));
  double sum[kRows] = {};
  for (int64_t k = 0; k < x.cols; ++k) {
    for (int64_t r = 0; r < kRows; ++r) sum[r] += double{row[r][k]} * double{column.weight[k]};
  }
  for (int64_t r = 0; r < rows; ++r) {
    float& y = out.row(begin + r)[column.index];
    const double value = Activate(params.activation, sum[r] + column.bias);
    y = static_cast<float>(params.add_to_out ? value + double{y} : value);
  }
}

}  // namespace

void ReferenceBackend::MatMul(const MatMulParams& params) {
  const HostView x = Map(params.x);
  for (const MatMulOut& one : params.outs) {
    const Matrix& weight = Object<Matrix>(*one.weight);
    const float* bias = one.bias == nullptr ? nullptr : Object<HostVector>(*one.bias).data();
    const HostView out = Map(one.out);
    CHECK_EQ(weight.k(), x.cols);
    CHECK_EQ(weight.n(), out.cols);
    CHECK_EQ(x.rows, out.rows);
    if (bias != nullptr) CHECK_EQ(Object<HostVector>(*one.bias).size(), out.cols);
    pool_.Run(static_cast<int>(out.cols), [&](int j) {
      std::vector<float> row(static_cast<size_t>(x.cols));
      weight.ReadRow(j, absl::MakeSpan(row));
      const Column column{row, bias == nullptr ? 0.0 : double{bias[j]}, j};
      for (int64_t i = 0; i < x.rows; i += kRows) MultiplyRows(x, i, column, params, out);
    });
  }
}

}  // namespace tessera::kernels::reference
