#pragma once

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <typeinfo>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"

// Memory of the backends whose device is the host: zeroed blocks, counted in a ledger, and the f32
// buffers behind a DeviceBuffer. Owner: the backend's thread; the ledger is read from any thread.
namespace tessera::kernels {

struct MemoryLedger {
  std::atomic<size_t> weights{0}, kv_cache{0}, buffers{0};
  MemoryUse Use() const { return {weights.load(), kv_cache.load(), buffers.load()}; }
};

enum class MemoryKind { kWeights, kKvCache, kBuffer };

// Zeroed bytes, aligned to 64; large blocks take no pages before they are written, weights ask for
// huge pages. Gives its bytes back to the ledger, which outlives it.
class HostBlock {
 public:
  HostBlock() = default;
  ~HostBlock();
  HostBlock(HostBlock&& other) noexcept { *this = std::move(other); }
  HostBlock& operator=(HostBlock&& other) noexcept;

  // The product of `factors` bytes. RESOURCE_EXHAUSTED with bytes asked for and in use.
  static absl::StatusOr<HostBlock> Create(std::initializer_list<size_t> factors, MemoryKind kind,
                                          MemoryLedger& ledger);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  void* mapping_ = nullptr;  // of mmap; null: from aligned_alloc
  size_t mapping_bytes_ = 0;
  std::atomic<size_t>* counter_ = nullptr;
};

// f32 activations.
class HostBuffer final : public DeviceObject {
 public:
  HostBuffer(HostBlock block, int64_t elements) : block_(std::move(block)), elements_(elements) {}
  float* data() const { return block_.as<float>(); }
  int64_t elements() const { return elements_; }

 private:
  HostBlock block_;
  int64_t elements_;
};

absl::StatusOr<DeviceBuffer> AllocateHostBuffer(int64_t elements, MemoryLedger& ledger);

// [n] weights as f32 in a HostBuffer's form, zero up to the next multiple of 64 elements.
class HostVector final : public DeviceObject {
 public:
  HostVector(HostBlock block, int64_t size) : block_(std::move(block)), size_(size) {}
  const float* data() const { return block_.as<float>(); }
  int64_t size() const { return size_; }

 private:
  HostBlock block_;
  int64_t size_;
};

// INVALID_ARGUMENT unless `vector` is [n] of f32, f16 or bf16.
absl::StatusOr<DeviceVector> LoadHostVector(const TensorView& vector, MemoryLedger& ledger);

// INVALID_ARGUMENT unless `weight` is [n, k] of f32, f16 or bf16 with n, k >= 1.
absl::Status CheckMatrix(const TensorView& weight);

// REQUIRES: sizes >= 1. INVALID_ARGUMENT unless the dtype is f16, f32 or int8, or where zero points
// are asked for without int8.
absl::Status CheckKvCacheSpec(const KvCacheSpec& spec);

// The object behind a handle. REQUIRES: this backend made the handle.
template <typename T, typename Tag>
T& Object(const DeviceHandle<Tag>& handle) {
  CHECK(!handle.empty());
  DeviceObject& object = *handle.object();
  CHECK(typeid(object) == typeid(T));
  return static_cast<T&>(object);
}

// A DeviceView with its address. REQUIRES (checked): rows lie inside the buffer.
struct HostView {
  float* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  float* row(int64_t i) const { return data + i * stride; }
};
HostView Map(const DeviceView& view);

// Elements [begin, begin + out.size()) of `view` as f32, exactly. f32, f16 or bf16.
void ReadFloats(const TensorView& view, int64_t begin, absl::Span<float> out);

}  // namespace tessera::kernels
