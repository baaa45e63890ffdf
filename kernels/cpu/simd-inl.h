// What the SIMD files share. Included once per target.
#if defined(TESSERA_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_SIMD_INL_H_
#undef TESSERA_KERNELS_CPU_SIMD_INL_H_
#else
#define TESSERA_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstring>

#include "common/base/half.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/memory.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
inline constexpr int kUnitVecs = static_cast<int>(kUnit) / kLanes;  // vectors in 16 floats

HWY_INLINE VF LoadF32(DF d, const float* p) { return hn::LoadU(d, p); }
HWY_INLINE VF LoadF32(DF d, const Half* p) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, base::HalfToFloat(p->bits));
#else
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#endif
}
HWY_INLINE VF LoadF32(DF d, const Brain* p) {
  const hn::Rebind<hwy::bfloat16_t, DF> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(p)));
}
HWY_INLINE VF LoadF32(DF d, const int8_t* p) {
  const hn::Rebind<int8_t, DF> d8;
  const hn::Rebind<int32_t, DF> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, p)));
}

HWY_INLINE void StoreF32(DF d, VF v, float* p) { hn::StoreU(v, d, p); }
HWY_INLINE void StoreF32(DF d, VF v, Half* p) {
#if HWY_TARGET == HWY_SCALAR
  p->bits = base::FloatToHalf(hn::GetLane(v));
#else
  const hn::Rebind<hwy::float16_t, DF> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
#endif
}

// 16 floats as vectors: sums over a row run in 16 chains on every target, so they round alike.
struct Unit {
  VF v[kUnitVecs];
};
HWY_INLINE Unit SetUnit(float x) {
  Unit unit;
  for (VF& v : unit.v) v = hn::Set(DF(), x);
  return unit;
}
template <typename W>
HWY_INLINE Unit LoadUnit(const W* p) {
  Unit unit;
  for (int i = 0; i < kUnitVecs; ++i) unit.v[i] = LoadF32(DF(), p + i * kLanes);
  return unit;
}
HWY_INLINE void StoreUnit(const Unit& unit, float* p) {
  for (int i = 0; i < kUnitVecs; ++i) hn::StoreU(unit.v[i], DF(), p + i * kLanes);
}
// The first `count` (< 16) floats; the others are `fill`.
HWY_INLINE Unit LoadUnitPart(const float* p, int64_t count, float fill = 0) {
  float part[kUnit];
  for (int i = 0; i < kUnit; ++i) part[i] = i < count ? p[i] : fill;
  return LoadUnit(part);
}
HWY_INLINE void StoreUnitPart(const Unit& unit, int64_t count, float* p) {
  float part[kUnit];
  StoreUnit(unit, part);
  std::memcpy(p, part, static_cast<size_t>(count) * sizeof(float));
}
// The sum of the 16, always as the same tree.
HWY_INLINE float SumOfUnit(const Unit& unit) {
  float x[kUnit];
  StoreUnit(unit, x);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x[i] += x[i + width];
  }
  return x[0];
}
HWY_INLINE float MaxOfUnit(const Unit& unit) {
  float x[kUnit];
  StoreUnit(unit, x);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x[i] = x[i] > x[i + width] ? x[i] : x[i + width];
  }
  return x[0];
}

// exp(x), NaN for NaN (Highway's answers 0), infinity from about 88.8 on.
HWY_INLINE VF ExpF32(DF d, VF x) {
  const VF y = hn::Exp(d, hn::Min(x, hn::Set(d, 100.0f)));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

// acc[r][p * kVecs + v] += sum over i < count of a[r * 16 + i] * w[p][i * stride + v * lanes]:
// every element one chain of fused products in the order of i, whatever the template's numbers are.
// `a` is a strip [kRows][16].
template <int kRows, int kPanels, int kVecs, typename W>
HWY_INLINE void Accumulate(DF d, const float* HWY_RESTRICT a, const W* const (&w)[kPanels],
                           int64_t stride, int64_t count, VF (&acc)[kRows][kPanels * kVecs]) {
  for (int64_t i = 0; i < count; ++i) {
    VF b[kPanels * kVecs];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) b[p * kVecs + v] = LoadF32(d, w[p] + i * stride + v * kLanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VF x = hn::Set(d, a[r * kUnit + i]);
#pragma GCC unroll 8
      for (int v = 0; v < kPanels * kVecs; ++v) acc[r][v] = hn::MulAdd(x, b[v], acc[r][v]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_CPU_SIMD_INL_H_
