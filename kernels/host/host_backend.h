#pragma once

#include "common/base/compute_pool.h"
#include "kernels/backend.h"
#include "kernels/host/host_memory.h"

namespace tessera::kernels {

// What backends on the host share: an op runs at once, and activations are f32 in host memory. Each
// op of theirs that is not here is a member function in the file named after it.
class HostBackend : public Backend {
 public:
  // `pool` outlives it.
  explicit HostBackend(base::ComputePool& pool) : pool_(pool) {}

  MemoryUse memory() const final { return ledger_.Use(); }
  size_t FreeMemory() const final;
  absl::StatusOr<DeviceBuffer> Allocate(int64_t elements) final;
  absl::StatusOr<DeviceVector> LoadVector(const TensorView& vector) final;
  void Download(DeviceView x, absl::Span<float> host) final;
  void CopyRows(DeviceView x, absl::Span<const int32_t> from, DeviceView out,
                absl::Span<const int32_t> to) final;
  void AddRows(DeviceView x, DeviceView table, absl::Span<const int32_t> index) final;
  absl::Status Synchronize() final { return absl::OkStatus(); }

 protected:
  base::ComputePool& pool_;
  MemoryLedger ledger_;
};

}  // namespace tessera::kernels
