#pragma once

#include "common/base/compute_pool.h"
#include "kernels/host/host_memory.h"

namespace tessera::kernels::cpu {

// Output columns in one panel of a packed matrix.
inline constexpr int64_t kPanel = 32;
// Keys in one sub-block of a cache, and the unit of every fixed-order sum.
inline constexpr int64_t kUnit = 16;

inline int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Elements of a matrix or a cache in memory.
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

// A matrix [n, k] of its own dtype in panels [n / 32][k][32 columns], zero beyond n.
class Matrix final : public DeviceObject {
 public:
  static absl::StatusOr<DeviceMatrix> Load(const TensorView& weight, MemoryLedger& ledger,
                                           base::ComputePool& pool);

  Matrix(HostBlock block, DType dtype, int64_t n, int64_t k)
      : block_(std::move(block)), dtype_(dtype), n_(n), k_(k) {}
  DType dtype() const { return dtype_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t panels() const { return (n_ + kPanel - 1) / kPanel; }
  template <typename W>
  const W* panel(int64_t index) const {
    return block_.as<W>() + index * k_ * kPanel;
  }

 private:
  HostBlock block_;
  DType dtype_;
  int64_t n_, k_;
};

// Where the keys and values of one kv head lie. Keys come in sub-blocks of 16, dimensions outermost
// ([head_dim][16 keys]), so that scores have keys in their lanes; values are rows of value_stride.
// int8 codes (kv_codes.h) have arrays of Half behind a block's values, each as long as the block's
// sub-blocks: scales of keys, scales of values and, with zero points, zeros of keys, of values.
struct KvView {
  const void* data = nullptr;      // of Half, float or int8_t
  const int32_t* table = nullptr;  // block numbers in order; null: 0, 1, 2, ...
  int64_t block_stride = 0;        // elements from one block to the next
  int64_t value_offset = 0;        // elements from a block's keys to its values
  int64_t value_stride = 0;        // elements from one key's values to the next
  int block_size = 0;              // keys in a block
  int units_per_block = 0;
  int head_dim = 0;
  bool zero_point = false;   // the rest: int8 only
  int64_t scale_offset = 0;  // elements from a block's keys to its scales
};

// A paged cache: [layer][block][kv head]{keys [block_size / 16][head_dim][16], values [block_size
// rounded up to 16][head_dim rounded up to 16], for int8 scales and zeros}.
class Cache final : public DeviceObject {
 public:
  // INVALID_ARGUMENT for a head_dim beyond kMaxHeadDim.
  static absl::StatusOr<KvCache> Make(const KvCacheSpec& spec, MemoryLedger& ledger);
  static size_t BytesPerBlock(const KvCacheSpec& spec);

  Cache(HostBlock block, const KvCacheSpec& spec) : block_(std::move(block)), spec_(spec) {}
  const KvCacheSpec& spec() const { return spec_; }
  KvView Head(int layer, int kv_head) const;
  void CopyBlock(const BlockCopy& copy) const;

 private:
  HostBlock block_;
  KvCacheSpec spec_;
};

inline constexpr int kMaxHeadDim = 512;

}  // namespace tessera::kernels::cpu
