#include "kernels/reference/memory.h"

#include <cstring>

#include "common/base/half.h"
#include "common/base/status_macros.h"

namespace tessera::kernels::reference {

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
  return size_t{2} * spec.layers * spec.block_size * spec.kv_heads * spec.head_dim *
         SizeOf(spec.dtype);
}

size_t Cache::Index(Part part, int layer, int64_t slot, int kv_head, int dim) const {
  const int64_t slots = spec_.blocks * spec_.block_size;
  CHECK(layer >= 0 && layer < spec_.layers);
  CHECK(slot >= 0 && slot < slots);
  const int64_t vector = ((part * int64_t{spec_.layers} + layer) * slots + slot) * spec_.kv_heads;
  return static_cast<size_t>((vector + kv_head) * spec_.head_dim + dim);
}

float Cache::Read(Part part, int layer, int64_t slot, int kv_head, int dim) const {
  const size_t index = Index(part, layer, slot, kv_head, dim);
  if (spec_.dtype == DType::kF32) return block_.as<float>()[index];
  return base::HalfToFloat(block_.as<uint16_t>()[index]);
}

void Cache::Write(Part part, int layer, int64_t slot, int kv_head, int dim, float value) {
  const size_t index = Index(part, layer, slot, kv_head, dim);
  if (spec_.dtype == DType::kF32) {
    block_.as<float>()[index] = value;
  } else {
    block_.as<uint16_t>()[index] = base::FloatToHalf(value);
  }
}

}  // namespace tessera::kernels::reference
