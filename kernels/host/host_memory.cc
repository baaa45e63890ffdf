#include "kernels/host/host_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/half.h"
#include "common/base/status_macros.h"

namespace tessera::kernels {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMapAtLeast = size_t{1} << 20;
constexpr int64_t kVectorPad = 64;

// Saturates.
size_t Product(std::initializer_list<size_t> factors) {
  size_t product = 1;
  for (size_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return SIZE_MAX;
  }
  return product;
}

std::atomic<size_t>& CounterOf(MemoryKind kind, MemoryLedger& ledger) {
  if (kind == MemoryKind::kWeights) return ledger.weights;
  return kind == MemoryKind::kKvCache ? ledger.kv_cache : ledger.buffers;
}

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

HostBlock::~HostBlock() {
  if (data_ == nullptr) return;
  counter_->fetch_sub(bytes_);
  if (mapping_ != nullptr) {
    munmap(mapping_, mapping_bytes_);
  } else {
    std::free(data_);
  }
}

HostBlock& HostBlock::operator=(HostBlock&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(counter_, other.counter_);
  return *this;
}

absl::StatusOr<HostBlock> HostBlock::Create(std::initializer_list<size_t> factors, MemoryKind kind,
                                            MemoryLedger& ledger) {
  HostBlock block;
  const size_t bytes = Product(factors);
  if (bytes < SIZE_MAX / 2) {
    const size_t rounded = RoundUp(bytes == 0 ? 1 : bytes, kAlignment);
    if (rounded < kMapAtLeast) {
      block.data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
      if (block.data_ != nullptr) std::memset(block.data_, 0, rounded);
    } else {
      const size_t mapped = rounded + kHugePage;
      void* at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at != MAP_FAILED) {
        block.mapping_ = at;
        block.mapping_bytes_ = mapped;
        block.data_ =
            reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(at), kHugePage));
        // A hint: where it is refused, the block works in small pages.
        if (kind == MemoryKind::kWeights) madvise(block.data_, rounded, MADV_HUGEPAGE);
      }
    }
  }
  if (block.data_ == nullptr) {
    const MemoryUse use = ledger.Use();
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes; in use: weights ", use.weights,
                     ", KV cache ", use.kv_cache, ", buffers ", use.buffers,
                     " bytes; lower the cache size or use a machine with more"));
  }
  block.bytes_ = bytes;
  block.counter_ = &CounterOf(kind, ledger);
  block.counter_->fetch_add(bytes);
  return block;
}

absl::StatusOr<DeviceBuffer> AllocateHostBuffer(int64_t elements, MemoryLedger& ledger) {
  CHECK_GE(elements, 0);
  ASSIGN_OR_RETURN(HostBlock block,
                   HostBlock::Create({static_cast<size_t>(elements), sizeof(float)},
                                     MemoryKind::kBuffer, ledger));
  return DeviceBuffer(std::make_unique<HostBuffer>(std::move(block), elements));
}

absl::StatusOr<DeviceVector> LoadHostVector(const TensorView& vector, MemoryLedger& ledger) {
  if (vector.shape.size() != 1 || !IsFloat16Or32(vector.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a vector of weights must be [n] of F32, F16 or BF16, this is ",
                     ShapeText(vector.shape), " of ", Name(vector.dtype)));
  }
  const int64_t size = vector.shape[0];
  const auto padded = RoundUp(static_cast<size_t>(size), kVectorPad);
  ASSIGN_OR_RETURN(HostBlock block,
                   HostBlock::Create({padded, sizeof(float)}, MemoryKind::kWeights, ledger));
  ReadFloats(vector, 0, {block.as<float>(), static_cast<size_t>(size)});
  return DeviceVector(std::make_unique<HostVector>(std::move(block), size));
}

absl::Status CheckMatrix(const TensorView& weight) {
  if (weight.shape.size() == 2 && weight.shape[0] >= 1 && weight.shape[1] >= 1 &&
      IsFloat16Or32(weight.dtype)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a matrix of weights must be [n, k] of F32, F16 or BF16, this is ",
                   ShapeText(weight.shape), " of ", Name(weight.dtype)));
}

absl::Status CheckKvCacheSpec(const KvCacheSpec& spec) {
  CHECK_GE(spec.layers, 1);
  CHECK_GE(spec.kv_heads, 1);
  CHECK_GE(spec.head_dim, 1);
  CHECK_GE(spec.blocks, 1);
  CHECK_GE(spec.block_size, 1);
  if (spec.dtype == DType::kI8) return absl::OkStatus();
  if (spec.dtype != DType::kF16 && spec.dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("a KV cache of ", Name(spec.dtype), " is not supported; use F16, F32 or I8"));
  }
  if (!spec.zero_point) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a KV cache of ", Name(spec.dtype), " has no zero points; only I8 has"));
}

HostView Map(const DeviceView& view) {
  CHECK(view.buffer != nullptr);
  const HostBuffer& buffer = Object<HostBuffer>(*view.buffer);
  CHECK_GE(view.rows, 0);
  CHECK_GE(view.cols, 0);
  if (view.rows > 1) CHECK_GE(view.stride, view.cols);
  if (view.rows > 0) {
    const int64_t end =
        static_cast<int64_t>(view.offset) + (view.rows - 1) * view.stride + view.cols;
    CHECK_LE(end, buffer.elements());
  }
  return {buffer.data() + view.offset, view.rows, view.cols, view.stride};
}

void ReadFloats(const TensorView& view, int64_t begin, absl::Span<float> out) {
  CHECK(IsFloat16Or32(view.dtype));
  const std::byte* from = view.data + static_cast<size_t>(begin) * SizeOf(view.dtype);
  if (view.dtype == DType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), from, out.size() * sizeof(float));
    return;
  }
  const bool f16 = view.dtype == DType::kF16;
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
    out[i] = f16 ? base::HalfToFloat(bits) : base::Bf16ToFloat(bits);
  }
}

}  // namespace tessera::kernels
