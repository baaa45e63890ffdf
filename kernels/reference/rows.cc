#include "kernels/reference/rows.h"

#include <algorithm>

#include "kernels/reference/memory.h"

namespace tessera::kernels::reference {

void Upload(const TensorView& host, const DeviceView& out) {
  const HostView to = Map(out);
  CHECK_EQ(NumElements(host.shape), to.rows * to.cols);
  for (int64_t i = 0; i < to.rows; ++i) {
    ReadFloats(host, i * to.cols, {to.row(i), static_cast<size_t>(to.cols)});
  }
}

void Download(const DeviceView& x, absl::Span<float> host) {
  const HostView from = Map(x);
  CHECK_EQ(static_cast<int64_t>(host.size()), from.rows * from.cols);
  for (int64_t i = 0; i < from.rows; ++i) {
    std::copy_n(from.row(i), from.cols, host.data() + i * from.cols);
  }
}

void EmbedTokens(const DeviceMatrix& table, absl::Span<const int32_t> ids, const DeviceView& out) {
  const Matrix& matrix = Object<Matrix>(table);
  const HostView to = Map(out);
  CHECK_EQ(static_cast<int64_t>(ids.size()), to.rows);
  CHECK_EQ(matrix.k(), to.cols);
  for (int64_t i = 0; i < to.rows; ++i) {
    if (ids[i] < 0) continue;
    CHECK_LT(ids[i], matrix.n());
    matrix.ReadRow(ids[i], {to.row(i), static_cast<size_t>(to.cols)});
  }
}

void CopyRows(const DeviceView& x, absl::Span<const int32_t> from, const DeviceView& out,
              absl::Span<const int32_t> to) {
  const HostView source = Map(x), target = Map(out);
  CHECK_EQ(from.size(), to.size());
  CHECK_EQ(source.cols, target.cols);
  for (size_t i = 0; i < from.size(); ++i) {
    CHECK(from[i] >= 0 && from[i] < source.rows);
    CHECK(to[i] >= 0 && to[i] < target.rows);
    std::copy_n(source.row(from[i]), source.cols, target.row(to[i]));
  }
}

void AddRows(const DeviceView& x, const DeviceView& table, absl::Span<const int32_t> index) {
  const HostView sums = Map(x), rows = Map(table);
  CHECK_EQ(static_cast<int64_t>(index.size()), sums.rows);
  CHECK_EQ(rows.cols, sums.cols);
  for (int64_t i = 0; i < sums.rows; ++i) {
    CHECK(index[i] >= 0 && index[i] < rows.rows);
    for (int64_t j = 0; j < sums.cols; ++j) sums.row(i)[j] += rows.row(index[i])[j];
  }
}

}  // namespace tessera::kernels::reference
