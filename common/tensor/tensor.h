#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "common/tensor/dtype.h"

namespace tessera {

// Extents, outermost first; a scalar has none. Row-major, dense.
using Shape = absl::InlinedVector<int64_t, 4>;

int64_t NumElements(const Shape& shape);    // REQUIRES: no overflow (checked where shapes come in)
std::string ShapeText(const Shape& shape);  // "[448, 64]"

// Borrowed host memory: `data` may be unaligned (files are), outlives the view.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;

  size_t bytes() const { return static_cast<size_t>(NumElements(shape)) * SizeOf(dtype); }
};

// Owned host memory.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Shape shape);  // zeros

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  absl::Span<std::byte> bytes() { return absl::MakeSpan(data_); }
  absl::Span<const std::byte> bytes() const { return data_; }
  TensorView view() const { return {dtype_, shape_, data_.data()}; }

  // REQUIRES: dtype() is kF32.
  absl::Span<float> f32();
  absl::Span<const float> f32() const;

 private:
  DType dtype_ = DType::kF32;
  Shape shape_;
  std::vector<std::byte> data_;
};

// All elements as f32, exactly. REQUIRES: dtype is f32, f16 or bf16.
std::vector<float> ToFloats(const TensorView& view);

}  // namespace tessera
