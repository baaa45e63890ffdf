#pragma once

#include <vector>

#include "kernels/host/host_backend.h"
#include "kernels/host/sampling.h"

namespace tessera::kernels::reference {

// Every op as one obvious loop in double. What the ops answer and require: kernels/backend.h.
class ReferenceBackend final : public HostBackend {
 public:
  using HostBackend::HostBackend;

  std::string name() const override { return "reference"; }
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
  std::vector<Candidate> candidates_;
};

}  // namespace tessera::kernels::reference
