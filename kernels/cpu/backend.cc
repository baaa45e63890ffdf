#include "kernels/cpu/backend.h"

#include "absl/strings/str_cat.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/rotary.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/sample.h"

namespace tessera::kernels::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(base::ComputePool& pool) : context_(pool) {}

  std::string name() const override {
    const int threads = context_.pool.threads();
    return absl::StrCat("cpu (", TargetName(), ", ", threads,
                        threads == 1 ? " thread)" : " threads)");
  }
  MemoryUse memory() const override { return ledger_.Use(); }

  absl::StatusOr<DeviceBuffer> Allocate(int64_t elements) override {
    return AllocateHostBuffer(elements, ledger_);
  }
  absl::StatusOr<DeviceMatrix> LoadMatrix(const TensorView& weight) override {
    return Matrix::Load(weight, ledger_, context_.pool);
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

  void Upload(const TensorView& host, DeviceView out) override { cpu::Upload(host, out); }
  void Download(DeviceView x, absl::Span<float> host) override { cpu::Download(x, host); }
  void EmbedTokens(const DeviceMatrix& table, absl::Span<const int32_t> ids,
                   DeviceView out) override {
    cpu::EmbedTokens(table, ids, out);
  }
  void CopyRows(DeviceView x, absl::Span<const int32_t> from, DeviceView out,
                absl::Span<const int32_t> to) override {
    cpu::CopyRows(x, from, out, to);
  }
  void AddRows(DeviceView x, DeviceView table, absl::Span<const int32_t> index) override {
    cpu::AddRows(x, table, index);
  }
  void RmsNorm(DeviceView x, const DeviceVector& weight, float epsilon, DeviceView out) override {
    cpu::RmsNorm(x, weight, epsilon, out, context_);
  }
  void LayerNorm(DeviceView x, const DeviceVector& weight, const DeviceVector& bias, float epsilon,
                 DeviceView out) override {
    cpu::LayerNorm(x, weight, bias, epsilon, out, context_);
  }
  void MatMul(const MatMulParams& params) override { cpu::MatMul(params, context_); }
  void GatedActivation(DeviceView gate, DeviceView up, Activation activation,
                       DeviceView out) override {
    cpu::GatedActivation(gate, up, activation, out, context_);
  }
  void RotaryAngles(const RotaryAnglesParams& params) override {
    cpu::RotaryAngles(params, context_);
  }
  void RotaryKvWrite(const RotaryKvParams& params) override {
    cpu::RotaryKvWrite(params, context_);
  }
  void PagedAttention(const PagedAttentionParams& params) override {
    cpu::PagedAttention(params, context_);
  }
  void PackedAttention(const PackedAttentionParams& params) override {
    cpu::PackedAttention(params, context_);
  }
  void Sample(const SampleParams& params) override { cpu::Sample(params, context_); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  Context context_;
  MemoryLedger ledger_;
};

}  // namespace

std::unique_ptr<Backend> CreateCpuBackend(base::ComputePool& pool) {
  return std::make_unique<CpuBackend>(pool);
}

}  // namespace tessera::kernels::cpu
