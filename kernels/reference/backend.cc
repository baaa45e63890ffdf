#include "kernels/reference/backend.h"

#include "kernels/reference/activation.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/matmul.h"
#include "kernels/reference/memory.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/rotary.h"
#include "kernels/reference/rows.h"
#include "kernels/reference/sample.h"

namespace tessera::kernels::reference {
namespace {

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(base::ComputePool& pool) : pool_(pool) {}

  std::string name() const override { return "reference"; }
  MemoryUse memory() const override { return ledger_.Use(); }

  absl::StatusOr<DeviceBuffer> Allocate(int64_t elements) override {
    return AllocateHostBuffer(elements, ledger_);
  }
  absl::StatusOr<DeviceMatrix> LoadMatrix(const TensorView& weight) override {
    return Matrix::Load(weight, ledger_);
  }
  absl::StatusOr<DeviceVector> LoadVector(const TensorView& vector) override {
    return LoadHostVector(vector, ledger_);
  }
  absl::StatusOr<KvCache> MakeKvCache(const KvCacheSpec& spec) override {
    return Cache::Make(spec, ledger_);
  }
  size_t KvBytesPerBlock(const KvCacheSpec& spec) const override {
    return Cache::BytesPerBlock(spec);
  }

  void Upload(const TensorView& host, DeviceView out) override { reference::Upload(host, out); }
  void Download(DeviceView x, absl::Span<float> host) override { reference::Download(x, host); }
  void EmbedTokens(const DeviceMatrix& table, absl::Span<const int32_t> ids,
                   DeviceView out) override {
    reference::EmbedTokens(table, ids, out);
  }
  void CopyRows(DeviceView x, absl::Span<const int32_t> from, DeviceView out,
                absl::Span<const int32_t> to) override {
    reference::CopyRows(x, from, out, to);
  }
  void AddRows(DeviceView x, DeviceView table, absl::Span<const int32_t> index) override {
    reference::AddRows(x, table, index);
  }
  void RmsNorm(DeviceView x, const DeviceVector& weight, float epsilon, DeviceView out) override {
    reference::RmsNorm(x, weight, epsilon, out);
  }
  void LayerNorm(DeviceView x, const DeviceVector& weight, const DeviceVector& bias, float epsilon,
                 DeviceView out) override {
    reference::LayerNorm(x, weight, bias, epsilon, out);
  }
  void MatMul(const MatMulParams& params) override { reference::MatMul(params, pool_); }
  void GatedActivation(DeviceView gate, DeviceView up, Activation activation,
                       DeviceView out) override {
    reference::GatedActivation(gate, up, activation, out);
  }
  void RotaryAngles(const RotaryAnglesParams& params) override { reference::RotaryAngles(params); }
  void RotaryKvWrite(const RotaryKvParams& params) override { reference::RotaryKvWrite(params); }
  void PagedAttention(const PagedAttentionParams& params) override {
    reference::PagedAttention(params, pool_);
  }
  void PackedAttention(const PackedAttentionParams& params) override {
    reference::PackedAttention(params, pool_);
  }
  void Sample(const SampleParams& params) override { reference::Sample(params, candidates_); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  base::ComputePool& pool_;
  MemoryLedger ledger_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::unique_ptr<Backend> CreateReferenceBackend(base::ComputePool& pool) {
  return std::make_unique<ReferenceBackend>(pool);
}

}  // namespace tessera::kernels::reference
