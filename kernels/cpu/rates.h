#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/compute_pool.h"
#include "kernels/host/host_memory.h"

namespace tessera::kernels::cpu {

// What the machine can do at most, for benchmarks to stand beside: all threads of `pool` at once.
class Rates {
 public:
  // Takes 1 GiB, in huge pages as weights are. `pool` outlives the object.
  static absl::StatusOr<std::unique_ptr<Rates>> Create(base::ComputePool& pool);

  // Fused f32 products with sums (two operations each) done per second, in registers, with more
  // chains per thread than an FMA's latency needs. Takes about 0.2 s.
  double FlopsPerSecond();
  // Bytes of the 1 GiB read and summed per second, four streams per thread.
  double BytesPerSecond();

 private:
  explicit Rates(base::ComputePool& pool) : pool_(pool) {}

  base::ComputePool& pool_;
  MemoryLedger ledger_;
  HostBlock memory_;
};

}  // namespace tessera::kernels::cpu
