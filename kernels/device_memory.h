#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "common/tensor/dtype.h"

// Opaque handles to what a backend keeps in device memory. They own it, can be moved, and hold no
// address that a caller could read: bytes go in and out by Backend::Upload and Backend::Download.
// A handle must die before its backend.
namespace tessera::kernels {

// What a backend hides behind a handle; each backend derives its own.
class DeviceObject {
 public:
  virtual ~DeviceObject() = default;
};

template <typename Tag>
class DeviceHandle {
 public:
  DeviceHandle() = default;
  explicit DeviceHandle(std::unique_ptr<DeviceObject> object) : object_(std::move(object)) {}
  bool empty() const { return object_ == nullptr; }
  // For backends only.
  DeviceObject* object() const { return object_.get(); }

 private:
  std::unique_ptr<DeviceObject> object_;
};

// Plain memory. A matrix or a vector of weights in the backend's own packing. A paged KV cache.
using DeviceBuffer = DeviceHandle<struct BufferTag>;
using DeviceMatrix = DeviceHandle<struct MatrixTag>;
using DeviceVector = DeviceHandle<struct VectorTag>;
using KvCache = DeviceHandle<struct KvCacheTag>;

// [rows, cols] activations inside a buffer, of the backend's activation dtype (f32 on reference and
// CPU); row r starts at element `offset + r * stride`. Copied by value; the buffer outlives it.
struct DeviceView {
  const DeviceBuffer* buffer = nullptr;
  size_t offset = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  // Rows [begin, begin + count).
  DeviceView Rows(int64_t begin, int64_t count) const {
    return {buffer, offset + static_cast<size_t>(begin * stride), count, cols, stride};
  }
  // Columns [begin, begin + count) of every row.
  DeviceView Cols(int64_t begin, int64_t count) const {
    return {buffer, offset + static_cast<size_t>(begin), rows, count, stride};
  }
};

}  // namespace tessera::kernels
