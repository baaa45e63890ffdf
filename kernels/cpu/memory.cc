#include "kernels/cpu/memory.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/host/kv_codes.h"

namespace tessera::kernels::cpu {
namespace {

// Columns of one panel from rows of the source, in strips of k that stay in the first cache.
template <typename T>
void PackPanel(const std::byte* rows, int64_t row_bytes, int64_t columns, int64_t k, T* panel) {
  constexpr int64_t kStrip = 64;
  for (int64_t begin = 0; begin < k; begin += kStrip) {
    const int64_t count = std::min(kStrip, k - begin);
    for (int64_t c = 0; c < columns; ++c) {
      T strip[kStrip];
      std::memcpy(strip, rows + c * row_bytes + begin * sizeof(T), count * sizeof(T));
      for (int64_t i = 0; i < count; ++i) panel[(begin + i) * kPanel + c] = strip[i];
    }
  }
}

int64_t ElementsPerHead(const KvCacheSpec& spec) {
  const int64_t keys = RoundUp(spec.block_size, kUnit);
  const auto scales = static_cast<int64_t>(2 * ScaleBytes(spec));  // of int8: an element is a byte
  return keys * (spec.head_dim + RoundUp(spec.head_dim, kUnit) + scales);
}

}  // namespace

absl::StatusOr<DeviceMatrix> Matrix::Load(const TensorView& weight, MemoryLedger& ledger,
                                          base::ComputePool& pool) {
  RETURN_IF_ERROR(CheckMatrix(weight));
  const int64_t n = weight.shape[0], k = weight.shape[1];
  const size_t size = SizeOf(weight.dtype);
  ASSIGN_OR_RETURN(HostBlock block, HostBlock::Create({static_cast<size_t>(RoundUp(n, kPanel)),
                                                       static_cast<size_t>(k), size},
                                                      MemoryKind::kWeights, ledger));
  auto matrix = std::make_unique<Matrix>(std::move(block), weight.dtype, n, k);
  const int64_t row_bytes = k * static_cast<int64_t>(size);
  pool.Run(static_cast<int>(matrix->panels()), [&](int p) {
    const std::byte* rows = weight.data + p * kPanel * row_bytes;
    const int64_t columns = std::min(kPanel, n - p * kPanel);
    if (size == sizeof(float)) {
      PackPanel(rows, row_bytes, columns, k, const_cast<float*>(matrix->panel<float>(p)));
    } else {
      PackPanel(rows, row_bytes, columns, k, const_cast<uint16_t*>(matrix->panel<uint16_t>(p)));
    }
  });
  return DeviceMatrix(std::move(matrix));
}

absl::StatusOr<KvCache> Cache::Make(const KvCacheSpec& spec, MemoryLedger& ledger) {
  RETURN_IF_ERROR(CheckKvCacheSpec(spec));
  if (spec.head_dim > kMaxHeadDim) {
    return absl::InvalidArgumentError(absl::StrCat("head_dim ", spec.head_dim, " is beyond ",
                                                   kMaxHeadDim, ", the CPU backend's largest"));
  }
  ASSIGN_OR_RETURN(HostBlock block,
                   HostBlock::Create({static_cast<size_t>(spec.blocks), BytesPerBlock(spec)},
                                     MemoryKind::kKvCache, ledger));
  return KvCache(std::make_unique<Cache>(std::move(block), spec));
}

size_t Cache::BytesPerBlock(const KvCacheSpec& spec) {
  return static_cast<size_t>(ElementsPerHead(spec)) * spec.layers * spec.kv_heads *
         SizeOf(spec.dtype);
}

void Cache::CopyBlock(const BlockCopy& copy) const {
  CHECK(copy.from >= 0 && copy.from < spec_.blocks && copy.to >= 0 && copy.to < spec_.blocks);
  const size_t bytes = BytesPerBlock(spec_) / spec_.layers;
  for (int64_t layer = 0; layer < spec_.layers; ++layer) {
    std::byte* blocks = block_.data() + static_cast<size_t>(layer * spec_.blocks) * bytes;
    std::memcpy(blocks + copy.to * bytes, blocks + copy.from * bytes, bytes);
  }
}

KvView Cache::Head(int layer, int kv_head) const {
  const int64_t head = ElementsPerHead(spec_), block = head * spec_.kv_heads;
  const int64_t at = layer * spec_.blocks * block + kv_head * head;
  const int64_t keys = RoundUp(spec_.block_size, kUnit);
  KvView view;
  view.data = block_.data() + at * static_cast<int64_t>(SizeOf(spec_.dtype));
  view.block_stride = block;
  view.value_offset = keys * spec_.head_dim;
  view.value_stride = RoundUp(spec_.head_dim, kUnit);
  view.block_size = spec_.block_size;
  view.units_per_block = static_cast<int>(keys / kUnit);
  view.head_dim = spec_.head_dim;
  view.zero_point = spec_.zero_point;
  view.scale_offset = view.value_offset + keys * view.value_stride;
  return view;
}

}  // namespace tessera::kernels::cpu
