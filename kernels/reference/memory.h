#pragma once

#include "kernels/host/host_memory.h"

namespace tessera::kernels::reference {

// A matrix as the file has it: [n, k] of its own dtype.
class Matrix final : public DeviceObject {
 public:
  static absl::StatusOr<DeviceMatrix> Load(const TensorView& weight, MemoryLedger& ledger);

  Matrix(HostBlock block, DType dtype, int64_t n, int64_t k)
      : block_(std::move(block)), view_{dtype, {n, k}, block_.data()} {}
  int64_t n() const { return view_.shape[0]; }
  int64_t k() const { return view_.shape[1]; }
  // Row `row` as f32, exactly. REQUIRES: out.size() is k().
  void ReadRow(int64_t row, absl::Span<float> out) const { ReadFloats(view_, row * k(), out); }

 private:
  HostBlock block_;
  TensorView view_;
};

// K and V as [layer][block][place in the block][kv head] vectors each: head_dim elements, and for
// int8 their scale and zero behind them (kv_codes.h).
class Cache final : public DeviceObject {
 public:
  static absl::StatusOr<KvCache> Make(const KvCacheSpec& spec, MemoryLedger& ledger);
  static size_t BytesPerBlock(const KvCacheSpec& spec);

  Cache(HostBlock block, const KvCacheSpec& spec) : block_(std::move(block)), spec_(spec) {}
  const KvCacheSpec& spec() const { return spec_; }

  enum Part { kKey, kValue };
  // The key or value in `slot` (block * block_size + place). out, x: [head_dim]
  void Read(Part part, int layer, int64_t slot, int kv_head, double* out) const;
  void CopyBlock(const BlockCopy& copy);
  void Write(Part part, int layer, int64_t slot, int kv_head, const float* x);

 private:
  std::byte* Vector(Part part, int layer, int64_t slot, int kv_head) const;
  void WriteCodes(const float* x, std::byte* at);

  HostBlock block_;
  KvCacheSpec spec_;
};

}  // namespace tessera::kernels::reference
