#include "kernels/cpu/rates.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "absl/memory/memory.h"
#include "common/base/status_macros.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rates.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kChains = 12;

// Operations per round of RunFma.
double FmaFlops() { return 2.0 * kChains * kLanes; }

// The result keeps the chains alive.
float RunFma(int64_t rounds) {
  const DF d;
  VF acc[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) acc[i] = hn::Set(d, static_cast<float>(i));
  const VF a = hn::Set(d, 0.5f), b = hn::Set(d, 1.0f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], a, b);
  }
  VF sum = hn::Zero(d);
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sum = hn::Add(sum, acc[i]);
  return hn::GetLane(sum);
}

// Adds `count` floats up in four streams. `count`: a multiple of 4 * 16.
float SumStreams(const float* data, int64_t count) {
  const DF d;
  const int64_t quarter = count / 4;
  VF acc[4 * kUnitVecs];
#pragma GCC unroll 16
  for (VF& v : acc) v = hn::Zero(d);
  for (int64_t i = 0; i < quarter; i += kUnit) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
#pragma GCC unroll 4
      for (int v = 0; v < kUnitVecs; ++v) {
        VF& sum = acc[s * kUnitVecs + v];
        sum = hn::Add(sum, hn::LoadU(d, data + s * quarter + i + v * kLanes));
      }
    }
  }
  VF sum = hn::Zero(d);
  for (const VF& v : acc) sum = hn::Add(sum, v);
  return hn::GetLane(sum);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {

HWY_EXPORT(FmaFlops);
HWY_EXPORT(RunFma);
HWY_EXPORT(SumStreams);

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rates>> Rates::Create(base::ComputePool& pool) {
  auto rates = absl::WrapUnique(new Rates(pool));
  ASSIGN_OR_RETURN(rates->memory_,
                   HostBlock::Create({size_t{1} << 30}, MemoryKind::kWeights, rates->ledger_));
  std::fill_n(rates->memory_.data(), rates->memory_.bytes(), std::byte{1});
  return rates;
}

double Rates::FlopsPerSecond() {
  constexpr int64_t kRounds = 1 << 18;
  constexpr double kSeconds = 0.2;
  const auto run = HWY_DYNAMIC_DISPATCH(RunFma);
  std::atomic<int64_t> rounds{0};
  const Clock::time_point start = Clock::now();
  pool_.Run(pool_.threads(), [&](int) {
    volatile float sink = 0;
    while (SecondsSince(start) < kSeconds) {
      sink = run(kRounds);
      rounds.fetch_add(kRounds, std::memory_order_relaxed);
    }
    (void)sink;
  });
  const double elapsed = SecondsSince(start);
  return static_cast<double>(rounds.load()) * HWY_DYNAMIC_DISPATCH(FmaFlops)() / elapsed;
}

double Rates::BytesPerSecond() {
  const auto sum = HWY_DYNAMIC_DISPATCH(SumStreams);
  const int tasks = 4 * pool_.threads();
  const auto floats = static_cast<int64_t>(memory_.bytes() / sizeof(float));
  const int64_t share = floats / tasks / (4 * kUnit) * (4 * kUnit);
  const float* data = memory_.as<float>();
  const Clock::time_point start = Clock::now();
  pool_.Run(tasks, [&](int task) {
    volatile float sink = sum(data + task * share, share);
    (void)sink;
  });
  return static_cast<double>(share * tasks) * sizeof(float) / SecondsSince(start);
}

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
