#pragma once

#include "kernels/cpu/context.h"
#include "kernels/host/host_backend.h"

namespace tessera::kernels::cpu {

// SIMD on the pool's threads. What the ops answer and require: kernels/backend.h.
class CpuBackend final : public HostBackend {
 public:
  // `pool` outlives it.
  explicit CpuBackend(base::ComputePool& pool) : HostBackend(pool), context_(pool) {}

  std::string name() const override;
  absl::StatusOr<DeviceMatrix> LoadMatrix(const TensorView& weight) override;
  absl::StatusOr<KvCache> MakeKvCache(const KvCacheSpec& spec) override;
  size_t KvBytesPerBlock(const KvCacheSpec& spec) const override;

  void Upload(const TensorView& host, DeviceView out) override;
  void EmbedTokens(const DeviceMatrix& table, absl::Span<const int32_t> ids,
                   DeviceView out) override;
  void RmsNorm(DeviceView x, const DeviceVector& weight, float epsilon, DeviceView out) override;
  void LayerNorm(DeviceView x, const DeviceVector& weight, const DeviceVector& bias, float epsilon,
                 DeviceView out) override;
  void MatMul(const MatMulParams& params) override;
  void GatedActivation(DeviceView gate, DeviceView up, Activation activation,
                       DeviceView out) override;
  void RotaryAngles(const RotaryAnglesParams& params) override;
  void CopyKvBlocks(const KvCache& cache, absl::Span<const BlockCopy> copies) override;
  void RotaryKvWrite(const RotaryKvParams& params) override;
  void PagedAttention(const PagedAttentionParams& params) override;
  void PackedAttention(const PackedAttentionParams& params) override;
  void Sample(const SampleParams& params) override;

 private:
  Context context_;
};

}  // namespace tessera::kernels::cpu
