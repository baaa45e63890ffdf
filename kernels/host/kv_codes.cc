#include "kernels/host/kv_codes.h"

#include <algorithm>

#include "common/base/half.h"

namespace tessera::kernels {
namespace {

constexpr float kLargestHalf = 65504;
constexpr uint16_t kNanHalf = 0x7E00;

// The least f16 number that is no less than `value`, at most the largest finite one.
// REQUIRES: value >= 0.
uint16_t HalfAtLeast(float value) {
  const uint16_t bits = base::FloatToHalf(std::min(value, kLargestHalf));
  // Bits of positive numbers are in the order of the numbers.
  return base::HalfToFloat(bits) < std::min(value, kLargestHalf) ? bits + 1 : bits;
}

}  // namespace

KvScale ScaleFor(float least, float largest, bool finite, bool zero_point) {
  if (!finite) return {kNanHalf, 0};
  KvScale out;
  float zero = 0;
  if (zero_point) {
    const float middle = 0.5f * least + 0.5f * largest;
    out.zero = base::FloatToHalf(std::clamp(middle, -kLargestHalf, kLargestHalf));
    zero = base::HalfToFloat(out.zero);
  }
  out.scale = HalfAtLeast(std::max(largest - zero, zero - least) / kLargestCode);
  return out;
}

}  // namespace tessera::kernels
