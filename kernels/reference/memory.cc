#include "kernels/reference/memory.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/half.h"
#include "common/base/status_macros.h"
#include "kernels/host/kv_codes.h"

namespace tessera::kernels::reference {
namespace {

size_t VectorBytes(const KvCacheSpec& spec) {
  return static_cast<size_t>(spec.head_dim) * SizeOf(spec.dtype) + ScaleBytes(spec);
}

// Element `index` of an array at any address.
template <typename T>
T Load(const std::byte* array, int index) {
  T out;
  std::memcpy(&out, array + index * sizeof(T), sizeof(T));
  return out;
}
template <typename T>
void Store(T value, std::byte* array, int index) {
  std::memcpy(array + index * sizeof(T), &value, sizeof(T));
}

}  // namespace

absl::StatusOr<DeviceMatrix> Matrix::Load(const TensorView& weight, MemoryLedger& ledger) {
  RETURN_IF_ERROR(CheckMatrix(weight));
  ASSIGN_OR_RETURN(HostBlock block,
                   HostBlock::Create({weight.bytes()}, MemoryKind::kWeights, ledger));
  std::memcpy(block.data(), weight.data, weight.bytes());
  return DeviceMatrix(
      std::make_unique<Matrix>(std::move(block), weight.dtype, weight.shape[0], weight.shape[1]));
}

absl::StatusOr<KvCache> Cache::Make(const KvCacheSpec& spec, MemoryLedger& ledger) {
  RETURN_IF_ERROR(CheckKvCacheSpec(spec));
  ASSIGN_OR_RETURN(HostBlock block,
                   HostBlock::Create({static_cast<size_t>(spec.blocks), BytesPerBlock(spec)},
                                     MemoryKind::kKvCache, ledger));
  return KvCache(std::make_unique<Cache>(std::move(block), spec));
}

size_t Cache::BytesPerBlock(const KvCacheSpec& spec) {
  return size_t{2} * spec.layers * spec.block_size * spec.kv_heads * VectorBytes(spec);
}

std::byte* Cache::Vector(Part part, int layer, int64_t slot, int kv_head) const {
  const int64_t slots = spec_.blocks * spec_.block_size;
  CHECK(layer >= 0 && layer < spec_.layers);
  CHECK(slot >= 0 && slot < slots);
  const int64_t vector = ((part * int64_t{spec_.layers} + layer) * slots + slot) * spec_.kv_heads;
  return block_.data() + static_cast<size_t>(vector + kv_head) * VectorBytes(spec_);
}

void Cache::Read(Part part, int layer, int64_t slot, int kv_head, double* out) const {
  const std::byte* at = Vector(part, layer, slot, kv_head);
  double scale = 1, zero = 0;
  if (spec_.dtype == DType::kI8) {
    scale = base::HalfToFloat(Load<uint16_t>(at + spec_.head_dim, 0));
    if (spec_.zero_point) zero = base::HalfToFloat(Load<uint16_t>(at + spec_.head_dim, 1));
  }
  for (int d = 0; d < spec_.head_dim; ++d) {
    if (spec_.dtype == DType::kF32) out[d] = Load<float>(at, d);
    if (spec_.dtype == DType::kF16) out[d] = base::HalfToFloat(Load<uint16_t>(at, d));
    if (spec_.dtype == DType::kI8) out[d] = zero + scale * Load<int8_t>(at, d);
  }
}

void Cache::CopyBlock(const BlockCopy& copy) {
  const size_t bytes = static_cast<size_t>(spec_.block_size) * spec_.kv_heads * VectorBytes(spec_);
  for (const Part part : {kKey, kValue}) {
    for (int layer = 0; layer < spec_.layers; ++layer) {
      std::memcpy(Vector(part, layer, int64_t{copy.to} * spec_.block_size, 0),
                  Vector(part, layer, int64_t{copy.from} * spec_.block_size, 0), bytes);
    }
  }
}

void Cache::Write(Part part, int layer, int64_t slot, int kv_head, const float* x) {
  std::byte* at = Vector(part, layer, slot, kv_head);
  if (spec_.dtype == DType::kI8) return WriteCodes(x, at);
  for (int d = 0; d < spec_.head_dim; ++d) {
    if (spec_.dtype == DType::kF32) {
      Store(x[d], at, d);
    } else {
      Store(base::FloatToHalf(x[d]), at, d);
    }
  }
}

void Cache::WriteCodes(const float* x, std::byte* at) {
  const float* end = x + spec_.head_dim;
  const bool finite = std::all_of(x, end, [](float v) { return std::isfinite(v); });
  const auto [least, largest] = std::minmax_element(x, end);
  const KvScale bits = ScaleFor(*least, *largest, finite, spec_.zero_point);
  const float scale = base::HalfToFloat(bits.scale), zero = base::HalfToFloat(bits.zero);
  for (int d = 0; d < spec_.head_dim; ++d) {
    const float code = scale > 0 ? std::nearbyint((x[d] - zero) / scale) : 0;
    Store(static_cast<int8_t>(std::clamp(code, -kLargestCode, kLargestCode)), at, d);
  }
  Store(bits.scale, at + spec_.head_dim, 0);
  if (spec_.zero_point) Store(bits.zero, at + spec_.head_dim, 1);
}

}  // namespace tessera::kernels::reference
