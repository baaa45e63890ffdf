#include <cmath>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE Unit LoadAny(const float* row, int64_t at, int64_t cols, float fill) {
  return at + kUnit <= cols ? LoadUnit(row + at) : LoadUnitPart(row + at, cols - at, fill);
}

float Mean(const float* row, int64_t cols) {
  Unit sum = SetUnit(0);
  for (int64_t c = 0; c < cols; c += kUnit) {
    const Unit x = LoadAny(row, c, cols, 0);
    for (int i = 0; i < kUnitVecs; ++i) sum.v[i] = hn::Add(sum.v[i], x.v[i]);
  }
  return SumOfUnit(sum) / static_cast<float>(cols);
}

// The mean of (x - mean)^2.
float Variance(const float* row, int64_t cols, float mean) {
  Unit sum = SetUnit(0);
  const VF center = hn::Set(DF(), mean);
  for (int64_t c = 0; c < cols; c += kUnit) {
    const Unit x = LoadAny(row, c, cols, mean);
    for (int i = 0; i < kUnitVecs; ++i) {
      const VF shifted = hn::Sub(x.v[i], center);
      sum.v[i] = hn::MulAdd(shifted, shifted, sum.v[i]);
    }
  }
  return SumOfUnit(sum) / static_cast<float>(cols);
}

// out = (x - mean) * scale * weight + bias; weight and bias are zero beyond cols; bias may be null.
void Scale(const float* x, int64_t cols, float mean, float scale, const float* weight,
           const float* bias, float* out) {
  const DF d;
  const VF center = hn::Set(d, mean), factor = hn::Set(d, scale);
  for (int64_t c = 0; c < cols; c += kUnit) {
    Unit y = LoadAny(x, c, cols, 0);
    for (int i = 0; i < kUnitVecs; ++i) {
      const VF w = hn::LoadU(d, weight + c + i * kLanes);
      const VF shift = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + c + i * kLanes);
      y.v[i] = hn::MulAdd(hn::Mul(hn::Sub(y.v[i], center), factor), w, shift);
    }
    if (c + kUnit <= cols) {
      StoreUnit(y, out + c);
    } else {
      StoreUnitPart(y, cols - c, out + c);
    }
  }
}

void NormRow(const float* x, int64_t cols, bool center, const float* weight, const float* bias,
             float epsilon, float* out) {
  const float mean = center ? Mean(x, cols) : 0;
  const float scale = 1 / std::sqrt(Variance(x, cols, mean) + epsilon);
  Scale(x, cols, mean, scale, weight, bias, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {

HWY_EXPORT(NormRow);

void Normalize(const DeviceView& x, const DeviceVector& weight, const float* bias, float epsilon,
               const DeviceView& out, Context& context) {
  const HostView from = Map(x), to = Map(out);
  CHECK(from.rows == to.rows && from.cols == to.cols);
  const HostVector& weights = Object<HostVector>(weight);
  CHECK_EQ(weights.size(), from.cols);
  const auto norm = HWY_DYNAMIC_DISPATCH(NormRow);
  context.ForRows(from.rows, from.cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      norm(from.row(i), from.cols, bias != nullptr, weights.data(), bias, epsilon, to.row(i));
    }
  });
}

}  // namespace

void CpuBackend::RmsNorm(DeviceView x, const DeviceVector& weight, float epsilon, DeviceView out) {
  Normalize(x, weight, nullptr, epsilon, out, context_);
}

void CpuBackend::LayerNorm(DeviceView x, const DeviceVector& weight, const DeviceVector& bias,
                           float epsilon, DeviceView out) {
  CHECK_EQ(Object<HostVector>(bias).size(), x.cols);
  Normalize(x, weight, Object<HostVector>(bias).data(), epsilon, out, context_);
}

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
