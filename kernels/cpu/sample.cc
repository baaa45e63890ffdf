#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sample.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

#ifndef TESSERA_KERNELS_CPU_SAMPLE_ONCE_
#define TESSERA_KERNELS_CPU_SAMPLE_ONCE_
namespace tessera::kernels::cpu {

constexpr int kTop = 5;
constexpr int64_t kStrip = 256;  // logits looked at together

}  // namespace tessera::kernels::cpu
#endif  // TESSERA_KERNELS_CPU_SAMPLE_ONCE_

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE Unit LoadAny(const float* x, int64_t at, int64_t count, float fill) {
  return at + kUnit <= count ? LoadUnit(x + at) : LoadUnitPart(x + at, count - at, fill);
}

// The largest of `count` logits; *finite becomes false at a NaN or an infinity.
float LargestOf(const float* x, int64_t count, bool* finite) {
  Unit largest = SetUnit(-std::numeric_limits<float>::infinity()), zeros = SetUnit(0);
  for (int64_t i = 0; i < count; i += kUnit) {
    const Unit v = LoadAny(x, i, count, x[0]);
    for (int j = 0; j < kUnitVecs; ++j) {
      largest.v[j] = hn::Max(largest.v[j], v.v[j]);
      zeros.v[j] = hn::Add(zeros.v[j], hn::Sub(v.v[j], v.v[j]));  // NaN unless finite
    }
  }
  *finite &= SumOfUnit(zeros) == 0;
  return MaxOfUnit(largest);
}

// The sum of exp(x - shift).
float SumOfExp(const float* x, int64_t count, float shift) {
  const DF d;
  const VF center = hn::Set(d, shift);
  Unit sum = SetUnit(0);
  for (int64_t i = 0; i < count; i += kUnit) {
    const Unit v = LoadAny(x, i, count, -std::numeric_limits<float>::infinity());
    for (int j = 0; j < kUnitVecs; ++j) {
      sum.v[j] = hn::Add(sum.v[j], ExpF32(d, hn::Sub(v.v[j], center)));
    }
  }
  return SumOfUnit(sum);
}

// Puts ids of logits above the fifth best so far into `best`, ids ascending: the first of equals
// stays in front.
void InsertTop(const float* logits, int64_t begin, int64_t end, int32_t* best, int* found) {
  for (int64_t id = begin; id < end; ++id) {
    int at = *found;
    while (at > 0 && logits[id] > logits[best[at - 1]]) --at;
    if (at == kTop) continue;
    if (*found < kTop) ++*found;
    for (int i = *found - 1; i > at; --i) best[i] = best[i - 1];
    best[at] = static_cast<int32_t>(id);
  }
}

// Fills everything but id and logprob; returns log(sum(exp(logits))).
double Survey(const float* logits, int64_t count, Sampled& out) {
  int found = 0;
  out.finite = true;
  for (int64_t i = 0; i < count; i += kStrip) {
    const int64_t end = std::min(count, i + kStrip);
    const float largest = LargestOf(logits + i, end - i, &out.finite);
    if (!out.finite) return 0;
    if (found < kTop || largest > logits[out.top_ids[kTop - 1]]) {
      InsertTop(logits, i, end, out.top_ids, &found);
    }
  }
  const float largest = logits[out.top_ids[0]];
  double total = 0;
  for (int64_t i = 0; i < count; i += kStrip) {
    total += double{SumOfExp(logits + i, std::min(kStrip, count - i), largest)};
  }
  const double log_total = double{largest} + std::log(total);
  for (int i = 0; i < found; ++i) {
    out.top_logprobs[i] = static_cast<float>(double{logits[out.top_ids[i]]} - log_total);
  }
  return log_total;
}

// The first of the largest logits, all finite.
int32_t FirstLargest(const float* logits, int64_t count) {
  int64_t strip = 0;
  float largest = -std::numeric_limits<float>::infinity();
  bool finite = true;
  for (int64_t i = 0; i < count; i += kStrip) {
    const float found = LargestOf(logits + i, std::min(kStrip, count - i), &finite);
    if (found > largest) {
      largest = found;
      strip = i;
    }
  }
  const float* end = logits + std::min(count, strip + kStrip);
  return static_cast<int32_t>(std::find(logits + strip, end, largest) - logits);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {
HWY_EXPORT(Survey);
HWY_EXPORT(FirstLargest);

// The id that `row` takes from the model's `logits`, whose largest is `best`.
int32_t Choose(absl::Span<const float> logits, const SamplingRow& row, int32_t best,
               Context& context) {
  const bool greedy = row.temperature == 0;
  if (!AdjustsLogits(row)) return greedy ? best : DrawToken(logits, row, context.candidates);
  const auto count = static_cast<int64_t>(logits.size());
  const absl::Span<float> adjusted(context.Floats(count), logits.size());
  AdjustLogits(logits, row, adjusted);
  if (greedy) return HWY_DYNAMIC_DISPATCH(FirstLargest)(adjusted.data(), count);
  return DrawToken(adjusted, row, context.candidates);
}

}  // namespace

void CpuBackend::Sample(const SampleParams& params) {
  const HostView logits = Map(params.logits);
  CHECK(params.id_limit > 0 && params.id_limit <= logits.cols);
  CHECK_EQ(static_cast<int64_t>(params.rows.size()), logits.rows);
  CHECK_EQ(params.rows.size(), params.out.size());
  const auto survey = HWY_DYNAMIC_DISPATCH(Survey);
  for (int64_t i = 0; i < logits.rows; ++i) {
    const absl::Span<const float> row(logits.row(i), static_cast<size_t>(params.id_limit));
    Sampled& out = params.out[i];
    out = Sampled();
    const double log_total = survey(row.data(), params.id_limit, out);
    if (!out.finite) {
      out = Sampled();
      continue;
    }
    out.id = Choose(row, params.rows[i], out.top_ids[0], context_);
    out.logprob = static_cast<float>(double{row[out.id]} - log_total);
  }
}

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
