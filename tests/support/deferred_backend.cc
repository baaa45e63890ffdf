#include "tests/support/deferred_backend.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace tessera::testing {
namespace {

using namespace kernels;  // NOLINT: the whole of backend.h is wrapped here

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kPoisonId = 0x5EADBEEF;

class DeferredBackend final : public Backend {
 public:
  DeferredBackend(std::unique_ptr<Backend> inner, std::function<absl::Status()> failure)
      : inner_(std::move(inner)), failure_(std::move(failure)) {}

  std::string name() const override { return "deferred " + inner_->name(); }
  MemoryUse memory() const override { return inner_->memory(); }
  size_t FreeMemory() const override { return inner_->FreeMemory(); }

  // Memory is made and weights are read at once, as backend.h says.
  absl::StatusOr<DeviceBuffer> Allocate(int64_t elements) override {
    return inner_->Allocate(elements);
  }
  absl::StatusOr<DeviceMatrix> LoadMatrix(const TensorView& weight) override {
    return inner_->LoadMatrix(weight);
  }
  absl::StatusOr<DeviceVector> LoadVector(const TensorView& vector) override {
    return inner_->LoadVector(vector);
  }
  absl::StatusOr<KvCache> MakeKvCache(const KvCacheSpec& spec) override {
    return inner_->MakeKvCache(spec);
  }
  size_t KvBytesPerBlock(const KvCacheSpec& spec) const override {
    return inner_->KvBytesPerBlock(spec);
  }

  void Upload(const TensorView& host, DeviceView out) override {
    Record([=](Backend& backend) { backend.Upload(host, out); });
  }
  void Download(DeviceView x, absl::Span<float> host) override {
    std::fill(host.begin(), host.end(), kPoison);
    Record([=](Backend& backend) { backend.Download(x, host); });
  }
  void EmbedTokens(const DeviceMatrix& table, absl::Span<const int32_t> ids,
                   DeviceView out) override {
    Record([=, &table](Backend& backend) { backend.EmbedTokens(table, ids, out); });
  }
  void CopyRows(DeviceView x, absl::Span<const int32_t> from, DeviceView out,
                absl::Span<const int32_t> to) override {
    Record([=](Backend& backend) { backend.CopyRows(x, from, out, to); });
  }
  void AddRows(DeviceView x, DeviceView table, absl::Span<const int32_t> index) override {
    Record([=](Backend& backend) { backend.AddRows(x, table, index); });
  }
  void RmsNorm(DeviceView x, const DeviceVector& weight, float epsilon, DeviceView out) override {
    Record([=, &weight](Backend& backend) { backend.RmsNorm(x, weight, epsilon, out); });
  }
  void LayerNorm(DeviceView x, const DeviceVector& weight, const DeviceVector& bias, float epsilon,
                 DeviceView out) override {
    Record([=, &weight, &bias](Backend& backend) {
      backend.LayerNorm(x, weight, bias, epsilon, out);
    });
  }
  void MatMul(const MatMulParams& params) override {
    std::vector<MatMulOut> outs(params.outs.begin(), params.outs.end());
    Record([params, outs = std::move(outs)](Backend& backend) {
      MatMulParams own = params;
      own.outs = outs;
      backend.MatMul(own);
    });
  }
  void GatedActivation(DeviceView gate, DeviceView up, Activation activation,
                       DeviceView out) override {
    Record([=](Backend& backend) { backend.GatedActivation(gate, up, activation, out); });
  }
  void RotaryAngles(const RotaryAnglesParams& params) override {
    Record([params](Backend& backend) { backend.RotaryAngles(params); });
  }
  void CopyKvBlocks(const KvCache& cache, absl::Span<const BlockCopy> copies) override {
    Record([&cache, copies](Backend& backend) { backend.CopyKvBlocks(cache, copies); });
  }
  void RotaryKvWrite(const RotaryKvParams& params) override {
    Record([params](Backend& backend) { backend.RotaryKvWrite(params); });
  }
  void PagedAttention(const PagedAttentionParams& params) override {
    Record([params](Backend& backend) { backend.PagedAttention(params); });
  }
  void PackedAttention(const PackedAttentionParams& params) override {
    Record([params](Backend& backend) { backend.PackedAttention(params); });
  }
  void Sample(const SampleParams& params) override {
    for (Sampled& sampled : params.out) {
      sampled.id = kPoisonId;
      sampled.logprob = kPoison;
      std::fill(std::begin(sampled.top_ids), std::end(sampled.top_ids), kPoisonId);
      std::fill(std::begin(sampled.top_logprobs), std::end(sampled.top_logprobs), kPoison);
      sampled.finite = false;
    }
    Record([params](Backend& backend) { backend.Sample(params); });
  }

  absl::Status Synchronize() override {
    std::vector<std::function<void(Backend&)>> ops;
    ops.swap(ops_);
    for (const auto& op : ops) op(*inner_);
    if (absl::Status status = inner_->Synchronize(); !status.ok() || failure_ == nullptr) {
      return status;
    }
    return failure_();
  }

 private:
  template <typename Op>
  void Record(Op op) {
    ops_.emplace_back(std::move(op));
  }

  std::unique_ptr<Backend> inner_;
  const std::function<absl::Status()> failure_;
  std::vector<std::function<void(Backend&)>> ops_;
};

}  // namespace

std::unique_ptr<Backend> MakeDeferredBackend(std::unique_ptr<Backend> inner,
                                             std::function<absl::Status()> failure) {
  return std::make_unique<DeferredBackend>(std::move(inner), std::move(failure));
}

}  // namespace tessera::testing
