#include "common/tensor/tensor.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/half.h"

namespace tessera {

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 1;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kI64:
    case DType::kU64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

absl::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kF64:
      return "F64";
    case DType::kI16:
      return "I16";
    case DType::kU16:
      return "U16";
    case DType::kU32:
      return "U32";
    case DType::kU64:
      return "U64";
    case DType::kBool:
      return "BOOL";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E5M2:
      return "F8_E5M2";
  }
  return "?";
}

int64_t NumElements(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

Tensor::Tensor(DType dtype, Shape shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      data_(static_cast<size_t>(NumElements(shape_)) * SizeOf(dtype)) {}

absl::Span<float> Tensor::f32() {
  CHECK(dtype_ == DType::kF32);
  return {reinterpret_cast<float*>(data_.data()), data_.size() / sizeof(float)};
}

absl::Span<const float> Tensor::f32() const {
  CHECK(dtype_ == DType::kF32);
  return {reinterpret_cast<const float*>(data_.data()), data_.size() / sizeof(float)};
}

std::vector<float> ToFloats(const TensorView& view) {
  CHECK(IsFloat16Or32(view.dtype));
  std::vector<float> out(static_cast<size_t>(NumElements(view.shape)));
  if (view.dtype == DType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), view.data, out.size() * sizeof(float));
    return out;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, view.data + 2 * i, sizeof(bits));
    out[i] = view.dtype == DType::kF16 ? base::HalfToFloat(bits) : base::Bf16ToFloat(bits);
  }
  return out;
}

}  // namespace tessera
