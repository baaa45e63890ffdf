#include <algorithm>

#include "kernels/reference/backend.h"
#include "kernels/reference/memory.h"

namespace tessera::kernels::reference {

void ReferenceBackend::Upload(const TensorView& host, DeviceView out) {
  const HostView to = Map(out);
  CHECK_EQ(NumElements(host.shape), to.rows * to.cols);
  for (int64_t i = 0; i < to.rows; ++i) {
    ReadFloats(host, i * to.cols, {to.row(i), static_cast<size_t>(to.cols)});
  }
}

void ReferenceBackend::EmbedTokens(const DeviceMatrix& table, absl::Span<const int32_t> ids,
                                   DeviceView out) {
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

}  // namespace tessera::kernels::reference
