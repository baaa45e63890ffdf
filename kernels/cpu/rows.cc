#include <algorithm>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <typename W>
void Widen(const std::byte* from, int64_t count, float* to) {
  const DF d;
  W strip[kUnit];
  int64_t i = 0;
  for (; i + kUnit <= count; i += kUnit) {  // the source may be unaligned
    std::memcpy(strip, from + i * static_cast<int64_t>(sizeof(W)), sizeof(strip));
    for (int v = 0; v < kUnitVecs; ++v) {
      hn::StoreU(LoadF32(d, strip + v * kLanes), d, to + i + v * kLanes);
    }
  }
}

// to = `count` elements at `from`.
void WidenRow(DType dtype, const std::byte* from, int64_t count, float* to) {
  if (dtype == DType::kF16) Widen<Half>(from, count, to);
  if (dtype == DType::kBF16) Widen<Brain>(from, count, to);
  const int64_t done = dtype == DType::kF32 ? 0 : count / kUnit * kUnit;
  ReadFloats({dtype, {count}, from}, done, {to + done, static_cast<size_t>(count - done)});
}

// to = column `column` of a panel [k][32].
template <typename W>
void ReadColumn(const W* panel, int64_t column, int64_t k, float* to) {
  const DF d;
  W strip[kUnit];
  for (int64_t i = 0; i < k; i += kUnit) {
    const int64_t count = std::min(kUnit, k - i);
    for (int64_t j = 0; j < kUnit; ++j) {
      strip[j] = panel[(i + std::min(j, count - 1)) * kPanel + column];
    }
    Unit unit;
    for (int v = 0; v < kUnitVecs; ++v) unit.v[v] = LoadF32(d, strip + v * kLanes);
    StoreUnitPart(unit, count, to + i);
  }
}

void ReadMatrixRow(const Matrix& matrix, int64_t row, float* to) {
  const int64_t panel = row / kPanel, column = row % kPanel;
  if (matrix.dtype() == DType::kF16) {
    ReadColumn(matrix.panel<Half>(panel), column, matrix.k(), to);
  } else if (matrix.dtype() == DType::kBF16) {
    ReadColumn(matrix.panel<Brain>(panel), column, matrix.k(), to);
  } else {
    ReadColumn(matrix.panel<float>(panel), column, matrix.k(), to);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {
HWY_EXPORT(WidenRow);
HWY_EXPORT(ReadMatrixRow);
}  // namespace

void CpuBackend::Upload(const TensorView& host, DeviceView out) {
  const HostView to = Map(out);
  CHECK(IsFloat16Or32(host.dtype));
  CHECK_EQ(NumElements(host.shape), to.rows * to.cols);
  const auto widen = HWY_DYNAMIC_DISPATCH(WidenRow);
  const int64_t row_bytes = to.cols * static_cast<int64_t>(SizeOf(host.dtype));
  for (int64_t i = 0; i < to.rows; ++i) {
    widen(host.dtype, host.data + i * row_bytes, to.cols, to.row(i));
  }
}

void CpuBackend::EmbedTokens(const DeviceMatrix& table, absl::Span<const int32_t> ids,
                             DeviceView out) {
  const Matrix& matrix = Object<Matrix>(table);
  const HostView to = Map(out);
  CHECK_EQ(static_cast<int64_t>(ids.size()), to.rows);
  CHECK_EQ(matrix.k(), to.cols);
  const auto read = HWY_DYNAMIC_DISPATCH(ReadMatrixRow);
  for (int64_t i = 0; i < to.rows; ++i) {
    if (ids[i] < 0) continue;
    CHECK_LT(ids[i], matrix.n());
    read(matrix, ids[i], to.row(i));
  }
}

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
