#include "kernels/host/host_backend.h"

#include <algorithm>

#include "kernels/free_memory.h"

namespace tessera::kernels {

size_t HostBackend::FreeMemory() const { return FreeHostMemory(); }

absl::StatusOr<DeviceBuffer> HostBackend::Allocate(int64_t elements) {
  return AllocateHostBuffer(elements, ledger_);
}

absl::StatusOr<DeviceVector> HostBackend::LoadVector(const TensorView& vector) {
  return LoadHostVector(vector, ledger_);
}

void HostBackend::Download(DeviceView x, absl::Span<float> host) {
  const HostView from = Map(x);
  CHECK_EQ(static_cast<int64_t>(host.size()), from.rows * from.cols);
  for (int64_t i = 0; i < from.rows; ++i) {
    std::copy_n(from.row(i), from.cols, host.data() + i * from.cols);
  }
}

void HostBackend::CopyRows(DeviceView x, absl::Span<const int32_t> from, DeviceView out,
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

void HostBackend::AddRows(DeviceView x, DeviceView table, absl::Span<const int32_t> index) {
  const HostView sums = Map(x), rows = Map(table);
  CHECK_EQ(static_cast<int64_t>(index.size()), sums.rows);
  CHECK_EQ(rows.cols, sums.cols);
  for (int64_t i = 0; i < sums.rows; ++i) {
    CHECK(index[i] >= 0 && index[i] < rows.rows);
    float* sum = sums.row(i);
    const float* row = rows.row(index[i]);
    for (int64_t j = 0; j < sums.cols; ++j) sum[j] += row[j];
  }
}

}  // namespace tessera::kernels
