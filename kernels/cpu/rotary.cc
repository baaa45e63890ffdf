#include <algorithm>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/targets.h"
#include "kernels/host/kv_codes.h"
#include "kernels/host/plan_checks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotary.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

#ifndef TESSERA_KERNELS_CPU_ROTARY_ONCE_
#define TESSERA_KERNELS_CPU_ROTARY_ONCE_
namespace tessera::kernels::cpu {

struct RotaryJob {
  HostView q, k, v, cos, sin;
  const Cache* cache = nullptr;
  int layer = 0;
  const int32_t* slots = nullptr;
};

}  // namespace tessera::kernels::cpu
#endif  // TESSERA_KERNELS_CPU_ROTARY_ONCE_

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// to = one head of `from`, turned; `to` may be `from`.
void TurnHead(const float* from, int64_t half, const float* cos, const float* sin, float* to) {
  for (int64_t c = 0; c < half; c += kUnit) {
    const bool whole = c + kUnit <= half;
    auto load = [&](const float* p)
                    HWY_ATTR { return whole ? LoadUnit(p + c) : LoadUnitPart(p + c, half - c); };
    const Unit x = load(from), y = load(from + half), cosine = load(cos), sine = load(sin);
    Unit a, b;
    for (int i = 0; i < kUnitVecs; ++i) {
      a.v[i] = hn::NegMulAdd(y.v[i], sine.v[i], hn::Mul(x.v[i], cosine.v[i]));
      b.v[i] = hn::MulAdd(x.v[i], sine.v[i], hn::Mul(y.v[i], cosine.v[i]));
    }
    const int64_t count = std::min(kUnit, half - c);
    StoreUnitPart(a, count, to + c);
    StoreUnitPart(b, count, to + half + c);
  }
}

// Puts one key (whose elements lie 16 apart) and one value into a cache of W.
template <typename W>
void WriteHead(const KvView& kv, int64_t slot, const float* key, const float* value) {
  const int64_t block = slot / kv.block_size, place = slot % kv.block_size;
  W* base = static_cast<W*>(const_cast<void*>(kv.data)) + block * kv.block_stride;
  W* keys = base + place / kUnit * kv.head_dim * kUnit + place % kUnit;
  W* values = base + kv.value_offset + place * kv.value_stride;
  for (int64_t c = 0; c < kv.head_dim; c += kUnit) {
    const int64_t count = std::min<int64_t>(kUnit, kv.head_dim - c);
    const Unit k = count == kUnit ? LoadUnit(key + c) : LoadUnitPart(key + c, count);
    const Unit v = count == kUnit ? LoadUnit(value + c) : LoadUnitPart(value + c, count);
    W strip[kUnit];
    for (int i = 0; i < kUnitVecs; ++i) {
      StoreF32(DF(), k.v[i], strip + i * kLanes);
      StoreF32(DF(), v.v[i], values + c + i * kLanes);
    }
    for (int64_t i = 0; i < count; ++i) keys[(c + i) * kUnit] = strip[i];
  }
}

// Codes of `x` [head_dim] into `codes` [head_dim rounded up to 16].
KvScale Encode(const float* x, int64_t head_dim, bool zero_point, int8_t* codes) {
  const DF d;
  const hn::Rebind<int32_t, DF> d32;
  const hn::Rebind<int8_t, DF> d8;
  auto load = [&](int64_t c) HWY_ATTR {
    return c + kUnit <= head_dim ? LoadUnit(x + c) : LoadUnitPart(x + c, head_dim - c, x[0]);
  };
  Unit largest = SetUnit(x[0]), least = SetUnit(-x[0]), nans = SetUnit(0);  // least: negated
  for (int64_t c = 0; c < head_dim; c += kUnit) {
    const Unit v = load(c);
    for (int i = 0; i < kUnitVecs; ++i) {
      largest.v[i] = hn::Max(largest.v[i], v.v[i]);
      least.v[i] = hn::Max(least.v[i], hn::Neg(v.v[i]));
      nans.v[i] = hn::Add(nans.v[i], hn::Sub(v.v[i], v.v[i]));  // NaN unless finite
    }
  }
  const KvScale bits =
      ScaleFor(-MaxOfUnit(least), MaxOfUnit(largest), SumOfUnit(nans) == 0, zero_point);
  const float scale = base::HalfToFloat(bits.scale);
  if (!(scale > 0)) {
    std::fill_n(codes, RoundUp(head_dim, kUnit), int8_t{0});
    return bits;
  }
  const VF zero = hn::Set(d, base::HalfToFloat(bits.zero)), divisor = hn::Set(d, scale);
  const VF most = hn::Set(d, kLargestCode);
  for (int64_t c = 0; c < head_dim; c += kUnit) {
    const Unit v = load(c);
    for (int i = 0; i < kUnitVecs; ++i) {
      const VF code = hn::Round(hn::Div(hn::Sub(v.v[i], zero), divisor));
      const VF inside = hn::Max(hn::Min(code, most), hn::Neg(most));
      hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(d32, inside)), d8, codes + c + i * kLanes);
    }
  }
  return bits;
}

void WriteHeadCodes(const KvView& kv, int64_t slot, const float* key, const float* value) {
  const int64_t block = slot / kv.block_size, place = slot % kv.block_size;
  auto* base = static_cast<int8_t*>(const_cast<void*>(kv.data)) + block * kv.block_stride;
  int8_t codes[kMaxHeadDim];
  const KvScale k = Encode(key, kv.head_dim, kv.zero_point, codes);
  int8_t* keys = base + place / kUnit * kv.head_dim * kUnit + place % kUnit;
  for (int64_t i = 0; i < kv.head_dim; ++i) keys[i * kUnit] = codes[i];
  const KvScale v =
      Encode(value, kv.head_dim, kv.zero_point, base + kv.value_offset + place * kv.value_stride);
  const int64_t stride = kv.units_per_block * kUnit;
  Half* scales = reinterpret_cast<Half*>(base + kv.scale_offset) + place;
  scales[0].bits = k.scale;
  scales[stride].bits = v.scale;
  if (!kv.zero_point) return;
  scales[2 * stride].bits = k.zero;
  scales[3 * stride].bits = v.zero;
}

void RotateTokens(const RotaryJob& job, int64_t begin, int64_t end) {
  const KvCacheSpec& spec = job.cache->spec();
  const int64_t head_dim = spec.head_dim, half = head_dim / 2;
  float key[kMaxHeadDim];
  for (int64_t t = begin; t < end; ++t) {
    const float* cos = job.cos.row(t);
    const float* sin = job.sin.row(t);
    for (float* q = job.q.row(t); q < job.q.row(t) + job.q.cols; q += head_dim) {
      TurnHead(q, half, cos, sin, q);
    }
    for (int h = 0; h < spec.kv_heads; ++h) {
      TurnHead(job.k.row(t) + h * head_dim, half, cos, sin, key);
      const KvView kv = job.cache->Head(job.layer, h);
      const float* value = job.v.row(t) + h * head_dim;
      if (spec.dtype == DType::kF16) {
        WriteHead<Half>(kv, job.slots[t], key, value);
      } else if (spec.dtype == DType::kI8) {
        WriteHeadCodes(kv, job.slots[t], key, value);
      } else {
        WriteHead<float>(kv, job.slots[t], key, value);
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {
HWY_EXPORT(RotateTokens);
}  // namespace

void CpuBackend::RotaryAngles(const RotaryAnglesParams& params) {
  const HostView cos = Map(params.cos), sin = Map(params.sin);
  CheckAngles(params);
  constexpr int64_t kCost = 16;  // a cosine against a usual element
  context_.ForRows(cos.rows, cos.cols * kCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) AnglesOfToken(params, t, cos.row(t), sin.row(t));
  });
}

void CpuBackend::RotaryKvWrite(const RotaryKvParams& params) {
  RotaryJob job{Map(params.q), Map(params.k), Map(params.v), Map(params.cos), Map(params.sin)};
  job.cache = &Object<Cache>(*params.cache);
  job.layer = params.layer;
  job.slots = params.slots.data();
  CheckRotary(params, job.cache->spec());
  const auto rotate = HWY_DYNAMIC_DISPATCH(RotateTokens);
  context_.ForRows(job.q.rows, job.q.cols + 2 * job.k.cols,
                   [&](int64_t begin, int64_t end) { rotate(job, begin, end); });
}

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
