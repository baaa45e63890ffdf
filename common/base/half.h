#pragma once

#include <cstdint>

// IEEE binary16 and bfloat16 to and from f32, round to nearest even; NaN stays NaN. Scalar and
// portable: for headers, tests and the reference backend. Kernels have their own SIMD conversions.
namespace tessera::base {

float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);  // |value| >= 65520 becomes infinity
float Bf16ToFloat(uint16_t bits);
uint16_t FloatToBf16(float value);

}  // namespace tessera::base
