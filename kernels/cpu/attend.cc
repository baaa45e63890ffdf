#include "kernels/cpu/attend.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attend.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kGroupUnits = 4;  // sub-blocks of 16 keys between two rescalings
// Rows of one register tile, and vectors of an output row that stay in registers with it.
constexpr int kTileRows = kLanes == 1 ? 4 : 6;
constexpr int kWideVecs = kLanes == 16 ? 4 : 2;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Codes that carry a scale, and perhaps a zero, per key.
template <typename W>
constexpr bool kCodes = std::is_same_v<W, int8_t>;

// The keys of one group: sub-blocks in order.
template <typename W>
struct Group {
  int units = 0;
  const W* key[kGroupUnits];    // [head_dim][16]
  const W* value[kGroupUnits];  // [16] rows
  int64_t first[kGroupUnits];   // position of the sub-block's first key
  int keys[kGroupUnits];        // keys that the sub-block holds
  // Codes only: [16] scales of the sub-block's keys; those of its values, and the zeros of both,
  // are at multiples of `scale_stride` from there.
  const Half* scale[kGroupUnits];
  int64_t scale_stride = 0;
};

// Some rows of a task and their running softmax.
template <int kRows>
struct Rows {
  const float* q;          // [head_dim / 16][kRows][16], scaled
  float* out;              // [kRows][padded head_dim]
  int64_t visible[kRows];  // keys that a row sees
  float largest[kRows];
  Unit total[kRows];
  // With zero points only: the sum of q, and of the weights times the zeros of the values.
  float sum[kRows];
  Unit zeros[kRows];
};

// Sub-blocks [unit, unit + 4) that begin before `limit`.
template <typename W>
Group<W> GroupAt(const KvView& kv, int64_t unit, int64_t limit) {
  Group<W> group;
  for (int u = 0; u < kGroupUnits; ++u) {
    const int64_t index = (unit + u) / kv.units_per_block;
    const int64_t within = (unit + u) % kv.units_per_block;
    const int64_t first = index * kv.block_size + within * kUnit;
    if (first >= limit) break;
    const int64_t block = kv.table == nullptr ? index : kv.table[index];
    const W* base = static_cast<const W*>(kv.data) + block * kv.block_stride;
    group.key[u] = base + within * kv.head_dim * kUnit;
    group.value[u] = base + kv.value_offset + within * kUnit * kv.value_stride;
    group.first[u] = first;
    group.keys[u] = static_cast<int>(std::min(kUnit, kv.block_size - within * kUnit));
    group.units = u + 1;
    if constexpr (kCodes<W>) {
      group.scale_stride = kv.units_per_block * kUnit;
      group.scale[u] = reinterpret_cast<const Half*>(base + kv.scale_offset) + within * kUnit;
    }
  }
  return group;
}

// Keys of sub-block `u` that a row with `visible` keys sees.
template <typename W>
HWY_INLINE int Seen(const Group<W>& group, int u, int64_t visible) {
  return static_cast<int>(std::clamp<int64_t>(visible - group.first[u], 0, group.keys[u]));
}

// scores[u][r][16] = q k^T for sub-blocks [u, u + kUnits).
template <int kRows, int kUnits, typename W>
HWY_INLINE void Score(const Group<W>& group, int u, int head_dim, const float* q, float* scores) {
  const DF d;
  VF acc[kRows][kUnits * kUnitVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kUnits * kUnitVecs; ++v) acc[r][v] = hn::Zero(d);
  }
  const W* key[kUnits];
  for (int i = 0; i < kUnits; ++i) key[i] = group.key[u + i];
  for (int64_t dim = 0; dim < head_dim; dim += kUnit) {
    Accumulate<kRows, kUnits, kUnitVecs>(d, q + dim * kRows, key, kUnit,
                                         std::min<int64_t>(kUnit, head_dim - dim), acc);
    for (int i = 0; i < kUnits; ++i) key[i] += kUnit * kUnit;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kUnits * kUnitVecs; ++v) {
      const int i = v / kUnitVecs;
      hn::StoreU(acc[r][v], d,
                 scores + ((u + i) * kRows + r) * kUnit + (v - i * kUnitVecs) * kLanes);
    }
  }
}

// Scores of keys that the row does not see become minus infinity. Returns the largest.
template <typename W>
HWY_INLINE float MaskRow(const Group<W>& group, int64_t visible, int64_t stride, float* scores) {
  Unit largest = SetUnit(kMinusInfinity);
  for (int u = 0; u < group.units; ++u) {
    float* unit = scores + u * stride;
    const int seen = Seen(group, u, visible);
    for (int i = seen; i < kUnit; ++i) unit[i] = kMinusInfinity;
    const Unit score = LoadUnit(unit);
    for (int i = 0; i < kUnitVecs; ++i) largest.v[i] = hn::Max(largest.v[i], score.v[i]);
  }
  return MaxOfUnit(largest);
}

// scores = exp(scores - largest), and adds them to total * factor.
HWY_INLINE void Weigh(int units, float largest, float factor, int64_t stride, float* scores,
                      Unit& total) {
  const DF d;
  const VF shift = hn::Set(d, largest), keep = hn::Set(d, factor);
  for (int i = 0; i < kUnitVecs; ++i) total.v[i] = hn::Mul(total.v[i], keep);
  for (int u = 0; u < units; ++u) {
    Unit weight = LoadUnit(scores + u * stride);
    for (int i = 0; i < kUnitVecs; ++i) {
      weight.v[i] = ExpF32(d, hn::Sub(weight.v[i], shift));
      total.v[i] = hn::Add(total.v[i], weight.v[i]);
    }
    StoreUnit(weight, scores + u * stride);
  }
}

// out = out * factor + weights * values, for kVecs vectors of the output row from `column` on.
// Row r sees seen[u] keys of sub-block u; its weights are weights[u * stride + r * 16].
template <int kRows, int kVecs, typename W>
HWY_INLINE void AddValues(const Group<W>& group, const int* seen, int64_t value_stride,
                          int64_t out_stride, int64_t column, const float* factor,
                          const float* weights, int64_t stride, float* out) {
  const DF d;
  VF acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const VF keep = hn::Set(d, factor[r]);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = hn::Mul(keep, hn::LoadU(d, out + r * out_stride + column + v * kLanes));
    }
  }
  for (int u = 0; u < group.units; ++u) {
    const W* value[1] = {group.value[u] + column};
    Accumulate<kRows, 1, kVecs>(d, weights + u * stride, value, value_stride, seen[u], acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      hn::StoreU(acc[r][v], d, out + r * out_stride + column + v * kLanes);
    }
  }
}

template <int kRows, typename W>
HWY_NOINLINE void AddAllValues(const Group<W>& group, int64_t visible, const KvView& kv,
                               const float* factor, const float* weights, int64_t stride,
                               float* out) {
  int seen[kGroupUnits];
  for (int u = 0; u < group.units; ++u) seen[u] = Seen(group, u, visible);
  const int64_t padded = RoundUp(kv.head_dim, kUnit);
  int64_t column = 0;
  for (; column + kWideVecs * kLanes <= padded; column += kWideVecs * kLanes) {
    AddValues<kRows, kWideVecs>(group, seen, kv.value_stride, padded, column, factor, weights,
                                stride, out);
  }
  for (; column < padded; column += kLanes) {
    AddValues<kRows, 1>(group, seen, kv.value_stride, padded, column, factor, weights, stride, out);
  }
}

template <int kRows, typename W>
HWY_INLINE void ScoreAll(const Group<W>& group, int head_dim, const float* q, float* scores) {
  constexpr int kUnits = kLanes == 1 ? 1 : kRows <= 2 ? 4 : kRows == 3 && kLanes == 16 ? 4 : 2;
  int u = 0;
  for (; u + kUnits <= group.units; u += kUnits) {
    Score<kRows, kUnits>(group, u, head_dim, q, scores);
  }
  for (; u < group.units; ++u) Score<kRows, 1>(group, u, head_dim, q, scores);
}

// Scores of codes become scores of keys: q (zero + scale code) = scale (q code) + zero sum(q).
template <int kRows, typename W>
HWY_INLINE void ScaleScores(const Group<W>& group, bool zero_point, const Rows<kRows>& rows,
                            float* scores) {
  for (int u = 0; u < group.units; ++u) {
    const Unit scale = LoadUnit(group.scale[u]);
    const Unit zero = zero_point ? LoadUnit(group.scale[u] + 2 * group.scale_stride) : SetUnit(0);
    for (int r = 0; r < kRows; ++r) {
      float* at = scores + (u * kRows + r) * kUnit;
      Unit score = LoadUnit(at);
      for (int i = 0; i < kUnitVecs; ++i) {
        score.v[i] = hn::Mul(score.v[i], scale.v[i]);
        if (!zero_point) continue;
        score.v[i] = hn::MulAdd(zero.v[i], hn::Set(DF(), rows.sum[r]), score.v[i]);
      }
      StoreUnit(score, at);
    }
  }
}

// Weights of one row become weights of codes; `zeros` = zeros * factor + weights * zeros of the
// values. A zero is finite, whatever was written, so that of a key with weight 0 adds nothing.
template <typename W>
HWY_INLINE void ScaleWeights(const Group<W>& group, bool zero_point, float factor, int64_t stride,
                             float* weights, Unit& zeros) {
  if (zero_point) {
    for (VF& v : zeros.v) v = hn::Mul(v, hn::Set(DF(), factor));
  }
  for (int u = 0; u < group.units; ++u) {
    const Half* at = group.scale[u] + group.scale_stride;
    const Unit scale = LoadUnit(at);
    const Unit zero = zero_point ? LoadUnit(at + 2 * group.scale_stride) : SetUnit(0);
    Unit weight = LoadUnit(weights + u * stride);
    for (int i = 0; i < kUnitVecs; ++i) {
      if (zero_point) zeros.v[i] = hn::MulAdd(weight.v[i], zero.v[i], zeros.v[i]);
      weight.v[i] = hn::Mul(weight.v[i], scale.v[i]);
    }
    StoreUnit(weight, weights + u * stride);
  }
}

// One group of keys for one tile of rows.
template <int kRows, typename W>
HWY_NOINLINE void AttendGroup(const Group<W>& group, const KvView& kv, Rows<kRows>& rows) {
  alignas(64) float scores[kGroupUnits * kRows * kUnit];
  constexpr int64_t kStride = kRows * kUnit;
  ScoreAll<kRows>(group, kv.head_dim, rows.q, scores);
  if constexpr (kCodes<W>) ScaleScores(group, kv.zero_point, rows, scores);
  // exp(old largest - new largest), taken for all rows at once.
  alignas(64) float factor[kUnit] = {};
  bool same = true;
  for (int r = 0; r < kRows; ++r) {
    same &= rows.visible[r] == rows.visible[0];
    if (rows.visible[r] <= group.first[0]) continue;
    const float found = MaskRow(group, rows.visible[r], kStride, scores + r * kUnit);
    const float largest = found > rows.largest[r] ? found : rows.largest[r];
    factor[r] = rows.largest[r] - largest;
    rows.largest[r] = largest;
  }
  Unit factors = LoadUnit(factor);
  for (int i = 0; i < kUnitVecs; ++i) factors.v[i] = ExpF32(DF(), factors.v[i]);
  StoreUnit(factors, factor);
  for (int r = 0; r < kRows; ++r) {
    if (rows.visible[r] <= group.first[0]) continue;
    float* weights = scores + r * kUnit;
    Weigh(group.units, rows.largest[r], factor[r], kStride, weights, rows.total[r]);
    if constexpr (kCodes<W>) {
      ScaleWeights(group, kv.zero_point, factor[r], kStride, weights, rows.zeros[r]);
    }
  }
  if (same) {
    AddAllValues<kRows>(group, rows.visible[0], kv, factor, scores, kStride, rows.out);
    return;
  }
  for (int r = 0; r < kRows; ++r) {  // the diagonal of a causal mask
    if (rows.visible[r] <= group.first[0]) continue;
    AddAllValues<1>(group, rows.visible[r], kv, factor + r, scores + r * kUnit, kStride,
                    rows.out + r * RoundUp(kv.head_dim, kUnit));
  }
}

// Fills a tile with rows [begin, begin + kRows) of the job.
template <int kRows>
void GatherRows(const AttendJob& job, int64_t begin, float* q, Rows<kRows>& rows) {
  const int head_dim = job.kv.head_dim;
  for (int r = 0; r < kRows; ++r) {
    const int64_t token = (begin + r) / job.group, head = (begin + r) % job.group;
    const float* from = job.q.row(token) + job.first_column + head * head_dim;
    rows.sum[r] = 0;
    for (int i = 0; i < head_dim; ++i) {
      const float scaled = from[i] * job.scale;
      q[(i / kUnit * kRows + r) * kUnit + i % kUnit] = scaled;
      rows.sum[r] += scaled;
    }
    rows.visible[r] = job.visible + token * job.visible_step;
    rows.largest[r] = kMinusInfinity;
    rows.total[r] = rows.zeros[r] = SetUnit(0);
  }
  rows.q = q;
}

template <int kRows>
void ScatterRows(const AttendJob& job, int64_t begin, const Rows<kRows>& rows) {
  const int head_dim = job.kv.head_dim;
  for (int r = 0; r < kRows; ++r) {
    const int64_t token = (begin + r) / job.group, head = (begin + r) % job.group;
    const float* from = rows.out + r * RoundUp(head_dim, kUnit);
    float* to = job.out.row(token) + job.first_column + head * head_dim;
    const float total = SumOfUnit(rows.total[r]), zeros = SumOfUnit(rows.zeros[r]);
    for (int i = 0; i < head_dim; ++i) to[i] = (from[i] + zeros) / total;
  }
}

template <int kRows, typename W>
void AttendTile(const AttendJob& job, int64_t begin) {
  alignas(64) float q[kRows * kMaxHeadDim];
  alignas(64) float out[kRows * kMaxHeadDim];
  Rows<kRows> rows;
  GatherRows(job, begin, q, rows);
  rows.out = out;
  std::fill_n(out, kRows * RoundUp(job.kv.head_dim, kUnit), 0.0f);
  const int64_t limit = *std::max_element(rows.visible, rows.visible + kRows);
  for (int64_t unit = 0;; unit += kGroupUnits) {
    const Group<W> group = GroupAt<W>(job.kv, unit, limit);
    if (group.units == 0) break;
    AttendGroup(group, job.kv, rows);
  }
  ScatterRows(job, begin, rows);
}

template <typename W>
void AttendRows(const AttendJob& job) {
  using Fn = void (*)(const AttendJob&, int64_t);
  static constexpr auto kTable = []<int... kRow>(std::integer_sequence<int, kRow...>) {
    return std::array<Fn, sizeof...(kRow)>{&AttendTile<kRow + 1, W>...};
  }
  (std::make_integer_sequence<int, kTileRows>());
  for (int64_t begin = job.begin; begin < job.end; begin += kTileRows) {
    kTable[std::min<int64_t>(kTileRows, job.end - begin) - 1](job, begin);
  }
}

void AttendAny(const AttendJob& job) {
  if (job.dtype == DType::kF16) {
    AttendRows<Half>(job);
  } else if (job.dtype == DType::kI8) {
    AttendRows<int8_t>(job);
  } else {
    AttendRows<float>(job);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {
HWY_EXPORT(AttendAny);
}  // namespace

void Attend(const AttendJob& job) { HWY_DYNAMIC_DISPATCH(AttendAny)(job); }

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
