// Activation functions over arrays. Included once per target.
#if defined(TESSERA_KERNELS_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_ACTIVATION_INL_H_
#undef TESSERA_KERNELS_CPU_ACTIVATION_INL_H_
#else
#define TESSERA_KERNELS_CPU_ACTIVATION_INL_H_
#endif

#include "kernels/backend.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

// x / (1 + exp(-steep))
HWY_INLINE VF Logistic(DF d, VF x, VF steep) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), ExpF32(d, hn::Neg(steep))));
}

// x/2 (1 + erf(x / sqrt 2)). erfc(z), z >= 0, is formula 7.1.26 of Abramowitz and Stegun (error at
// most 1.5e-7); taken for both signs, so that nothing cancels where the result is small.
HWY_INLINE VF GeluErf(DF d, VF x) {
  const VF z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678118654752f));
  const VF one = hn::Set(d, 1.0f);
  const VF t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.3275911f), z, one));
  VF poly = hn::Set(d, 1.061405429f);
  poly = hn::MulAdd(poly, t, hn::Set(d, -1.453152027f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 1.421413741f));
  poly = hn::MulAdd(poly, t, hn::Set(d, -0.284496736f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.254829592f));
  const VF erfc = hn::Mul(hn::Mul(poly, t), ExpF32(d, hn::Neg(hn::Mul(z, z))));
  const VF half = hn::Mul(erfc, hn::Set(d, 0.5f));
  const auto negative = hn::Lt(x, hn::Zero(d));
  return hn::Mul(x, hn::IfThenElse(negative, half, hn::Sub(one, half)));
}

HWY_INLINE VF GeluTanh(DF d, VF x) {
  // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)); 2 sqrt(2 / pi) = 1.5957691
  const VF cube = hn::Mul(hn::Mul(x, x), x);
  const VF inner = hn::MulAdd(cube, hn::Set(d, 0.044715f), x);
  return Logistic(d, x, hn::Mul(inner, hn::Set(d, 1.5957691216057308f)));
}

// x = activation(x) over `count` floats, a multiple of 16.
HWY_INLINE void ActivateArray(Activation activation, float* x, int64_t count) {
  const DF d;
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      for (int64_t i = 0; i < count; i += kLanes) {
        const VF v = hn::LoadU(d, x + i);
        const VF zero = hn::Zero(d);
        hn::StoreU(hn::IfThenElse(hn::Lt(v, zero), zero, v), d, x + i);  // NaN stays
      }
      return;
    case Activation::kGelu:
      for (int64_t i = 0; i < count; i += kLanes) {
        hn::StoreU(GeluErf(d, hn::LoadU(d, x + i)), d, x + i);
      }
      return;
    case Activation::kGeluTanh:
      for (int64_t i = 0; i < count; i += kLanes) {
        hn::StoreU(GeluTanh(d, hn::LoadU(d, x + i)), d, x + i);
      }
      return;
    case Activation::kQuickGelu:
    case Activation::kSilu: {
      const VF factor = hn::Set(d, activation == Activation::kSilu ? 1.0f : 1.702f);
      for (int64_t i = 0; i < count; i += kLanes) {
        const VF v = hn::LoadU(d, x + i);
        hn::StoreU(Logistic(d, v, hn::Mul(v, factor)), d, x + i);
      }
      return;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_CPU_ACTIVATION_INL_H_
