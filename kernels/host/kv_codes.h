#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace tessera::kernels {

// How an int8 KV cache stores a vector x of one token and head, the same on every host backend:
//   x[i] = zero + scale * code[i],  code[i] = round((x[i] - zero) / scale) in -127..127,
// the quotient in f32, rounded to nearest even. scale and zero are f16: zero is the middle of the
// vector's range, or 0 without zero points, and scale the least f16 number that is no less than
// 1 / 127 of the largest |x - zero|, so an element is off by at most scale / 2 (and its rounding in
// f32). A vector that is all `zero` has scale 0. What lies beyond 127 * 65504 of zero becomes that:
// finite numbers stay finite. A vector with NaN or infinity has a NaN scale: whoever reads it sees.
inline constexpr float kLargestCode = 127;

// Bits of f16.
struct KvScale {
  uint16_t scale = 0;
  uint16_t zero = 0;
};

// Of a vector whose least and largest elements are these. `finite`: so is every element.
KvScale ScaleFor(float least, float largest, bool finite, bool zero_point);

// Bytes of scale and zero beside the codes of one vector; 0 unless the cache is int8.
inline size_t ScaleBytes(const KvCacheSpec& spec) {
  if (spec.dtype != DType::kI8) return 0;
  return spec.zero_point ? sizeof(KvScale) : sizeof(KvScale::scale);
}

}  // namespace tessera::kernels
