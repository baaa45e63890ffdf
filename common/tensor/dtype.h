#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace tessera {

// Element types of tensors, as safetensors names them.
enum class DType {
  kF32,
  kF16,
  kBF16,
  kI8,
  kU8,
  kI32,
  kI64,
  kF64,
  kI16,
  kU16,
  kU32,
  kU64,
  kBool,
  kF8E4M3,
  kF8E5M2
};

// Bytes per element.
size_t SizeOf(DType dtype);
// "F32", "BF16", ... as in a safetensors header.
absl::string_view Name(DType dtype);
inline bool IsFloat16Or32(DType d) {
  return d == DType::kF32 || d == DType::kF16 || d == DType::kBF16;
}

}  // namespace tessera
