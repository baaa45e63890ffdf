#include <algorithm>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

void GateRow(const float* gate, const float* up, int64_t cols, Activation activation, float* out) {
  constexpr int64_t kStrip = 256;
  const DF d;
  alignas(64) float strip[kStrip];
  for (int64_t c = 0; c < cols; c += kStrip) {
    const int64_t count = std::min(kStrip, cols - c), padded = RoundUp(count, kUnit);
    std::fill(strip + count, strip + padded, 0.0f);
    std::memcpy(strip, gate + c, static_cast<size_t>(count) * sizeof(float));
    ActivateArray(activation, strip, padded);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, strip + i), hn::LoadU(d, up + c + i)), d, out + c + i);
    }
    for (; i < count; ++i) out[c + i] = strip[i] * up[c + i];
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {
HWY_EXPORT(GateRow);
}  // namespace

void CpuBackend::GatedActivation(DeviceView gate, DeviceView up, Activation activation,
                                 DeviceView out) {
  const HostView gates = Map(gate), ups = Map(up), outs = Map(out);
  CHECK(gates.rows == outs.rows && ups.rows == outs.rows);
  CHECK(gates.cols == outs.cols && ups.cols == outs.cols);
  const auto row_fn = HWY_DYNAMIC_DISPATCH(GateRow);
  context_.ForRows(outs.rows, outs.cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      row_fn(gates.row(i), ups.row(i), outs.cols, activation, outs.row(i));
    }
  });
}

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
