#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/simd-inl.h"

#ifndef TESSERA_KERNELS_CPU_MATMUL_ONCE_
#define TESSERA_KERNELS_CPU_MATMUL_ONCE_
namespace tessera::kernels::cpu {

// One matrix of the call, its shapes checked.
struct MatMulPart {
  const Matrix* weight = nullptr;
  const float* bias = nullptr;  // zero up to the end of the last panel
  HostView out;
};

// One call. x is packed in tiles of up to `tile_rows` rows, each [k / 16][rows][16]: tile t begins
// at t * tile_rows * RoundUp(k, 16).
struct MatMulJob {
  const float* packed = nullptr;
  HostView x;
  int64_t tile_rows = 0;
  int64_t block_rows = 0;  // rows that stay in the second cache while panels pass by
  int64_t row_blocks = 0;
  int64_t panel_chunks = 0;
  int64_t panels = 0;  // of all parts
  absl::Span<const MatMulPart> parts;
  Activation activation = Activation::kNone;
  bool add_to_out = false;

  int64_t PaddedK() const { return RoundUp(x.cols, kUnit); }
};

}  // namespace tessera::kernels::cpu
#endif  // TESSERA_KERNELS_CPU_MATMUL_ONCE_

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Register tiles: rows x panels x vectors of a panel per pass. With one or two rows, several panels
// at once keep more reads of memory in flight.
constexpr int kMaxRows = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 4;
constexpr int PanelsFor(int rows) {
  if (kLanes == 16) return rows <= 2 ? 4 : rows <= 6 ? 2 : 1;
  return kLanes == 8 && rows == 1 ? 2 : 1;
}
constexpr int VecsFor(int rows) {
  if (kLanes == 16) return 2;
  return kLanes == 8 && rows <= 3 ? 4 : 2;
}
constexpr int kMaxPanels = 4;

// y[r][p * 32 + c] = the products of `kRows` rows with `kPanels` panels.
template <typename W, int kRows, int kPanels>
HWY_NOINLINE void Tile(const float* HWY_RESTRICT a, int64_t k, const W* HWY_RESTRICT w,
                       float* HWY_RESTRICT y) {
  constexpr int kVecs = VecsFor(kRows);
  constexpr int64_t kAhead = 128 * kPanel;  // elements: what a read of memory takes
  const DF d;
  for (int64_t column = 0; column < kPanel; column += kVecs * kLanes) {
    VF acc[kRows][kPanels * kVecs];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kPanels * kVecs; ++v) acc[r][v] = hn::Zero(d);
    }
    const float* strip = a;
    const W* from[kPanels];
    for (int p = 0; p < kPanels; ++p) from[p] = w + p * k * kPanel + column;
    for (int64_t begin = 0; begin < k; begin += kUnit) {
      if (column == 0) {
        for (int p = 0; p < kPanels; ++p) {
          for (int64_t i = 0; i < kUnit * kPanel; i += 64 / static_cast<int64_t>(sizeof(W))) {
            hwy::Prefetch(from[p] + kAhead + i);
          }
        }
      }
      Accumulate<kRows, kPanels, kVecs>(d, strip, from, kPanel, std::min(kUnit, k - begin), acc);
      strip += kRows * kUnit;
      for (int p = 0; p < kPanels; ++p) from[p] += kUnit * kPanel;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kPanels * kVecs; ++v) {
        const int p = v / kVecs;
        hn::StoreU(acc[r][v], d,
                   y + (r * kPanels + p) * kPanel + column + (v - p * kVecs) * kLanes);
      }
    }
  }
}

template <typename W>
using TileFn = void (*)(const float*, int64_t, const W*, float*);

template <typename W, bool kWide>
TileFn<W> TileOf(int rows) {
  static constexpr auto kTable = []<int... kRow>(std::integer_sequence<int, kRow...>) {
    return std::array<TileFn<W>, sizeof...(kRow)>{&Tile < W, kRow + 1,
                                                  kWide ? PanelsFor(kRow + 1) : 1 > ...};
  }
  (std::make_integer_sequence<int, kMaxRows>());
  return kTable[rows - 1];
}

// Writes a tile y [rows][columns rounded up to 32] to out[row_begin..][column_begin..].
void Finish(const MatMulJob& job, const MatMulPart& part, int64_t row_begin, int64_t rows,
            int64_t column_begin, int64_t padded, float* HWY_RESTRICT y) {
  const DF d;
  if (part.bias != nullptr) {
    const float* bias = part.bias + column_begin;
    for (int64_t r = 0; r < rows; ++r) {
      float* row = y + r * padded;
      for (int64_t c = 0; c < padded; c += kLanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, row + c), hn::LoadU(d, bias + c)), d, row + c);
      }
    }
  }
  ActivateArray(job.activation, y, rows * padded);
  const int64_t columns = std::min(padded, part.out.cols - column_begin);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = y + r * padded;
    float* out = part.out.row(row_begin + r) + column_begin;
    if (!job.add_to_out) {
      std::memcpy(out, row, static_cast<size_t>(columns) * sizeof(float));
      continue;
    }
    int64_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, row + c), hn::LoadU(d, out + c)), d, out + c);
    }
    for (; c < columns; ++c) out[c] = row[c] + out[c];
  }
}

// Rows [row_begin, row_end) of one part's panels [begin, end).
template <typename W>
void Multiply(const MatMulJob& job, const MatMulPart& part, int64_t begin, int64_t end,
              int64_t row_begin, int64_t row_end) {
  alignas(64) float y[kMaxRows * kMaxPanels * kPanel];
  const int64_t k = job.x.cols;
  const int first_rows = static_cast<int>(std::min(job.tile_rows, row_end - row_begin));
  for (int64_t p = begin; p < end;) {
    const int64_t width = p + PanelsFor(first_rows) <= end ? PanelsFor(first_rows) : 1;
    for (int64_t row = row_begin; row < row_end; row += job.tile_rows) {
      const int rows = static_cast<int>(std::min(job.tile_rows, row_end - row));
      const float* a = job.packed + row * job.PaddedK();
      // The last tile of many may be narrow: it takes the panels of this pass one by one.
      const bool wide = width == PanelsFor(rows);
      for (int64_t q = p; q < p + width; q += wide ? width : 1) {
        const TileFn<W> tile = wide ? TileOf<W, true>(rows) : TileOf<W, false>(rows);
        tile(a, k, part.weight->panel<W>(q), y);
        Finish(job, part, row, rows, q * kPanel, (wide ? width : 1) * kPanel, y);
      }
    }
    p += width;
  }
}

void MatMulTask(const MatMulJob& job, int task) {
  const int64_t row_begin = task % job.row_blocks * job.block_rows;
  const int64_t row_end = std::min(job.x.rows, row_begin + job.block_rows);
  const int64_t chunk = task / job.row_blocks;
  int64_t begin = job.panels * chunk / job.panel_chunks;
  int64_t end = job.panels * (chunk + 1) / job.panel_chunks;
  for (const MatMulPart& part : job.parts) {
    const int64_t panels = part.weight->panels();
    const int64_t from = std::max<int64_t>(begin, 0), to = std::min(end, panels);
    if (from < to) {
      const DType dtype = part.weight->dtype();
      if (dtype == DType::kF16) Multiply<Half>(job, part, from, to, row_begin, row_end);
      if (dtype == DType::kBF16) Multiply<Brain>(job, part, from, to, row_begin, row_end);
      if (dtype == DType::kF32) Multiply<float>(job, part, from, to, row_begin, row_end);
    }
    begin -= panels;
    end -= panels;
  }
}

int MatMulTileRows() { return kMaxRows; }

const char* NameOfTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {

HWY_EXPORT(MatMulTask);
HWY_EXPORT(MatMulTileRows);
HWY_EXPORT(NameOfTarget);

constexpr int64_t kRowBlockFloats = 64 * 1024;  // a quarter of a usual second cache
constexpr size_t kMaxParts = 8;

// Strips of rows [begin, begin + rows): [k / 16][rows][16].
void PackTile(const HostView& x, int64_t begin, int64_t rows, float* packed) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.row(begin + r);
    float* to = packed + r * kUnit;
    for (int64_t c = 0; c < x.cols; c += kUnit, to += rows * kUnit) {
      if (c + kUnit <= x.cols) {
        std::memcpy(to, row + c, sizeof(float) * kUnit);
      } else {
        std::copy(row + c, row + x.cols, to);
      }
    }
  }
}

MatMulPart PartOf(const MatMulOut& one, const HostView& x) {
  MatMulPart part{&Object<Matrix>(*one.weight), nullptr, Map(one.out)};
  CHECK_EQ(part.weight->k(), x.cols);
  CHECK_EQ(part.weight->n(), part.out.cols);
  CHECK_EQ(x.rows, part.out.rows);
  if (one.bias != nullptr) {
    CHECK_EQ(Object<HostVector>(*one.bias).size(), part.out.cols);
    part.bias = Object<HostVector>(*one.bias).data();
  }
  return part;
}

// Cuts the work into about four tasks per thread.
void Schedule(MatMulJob& job, int threads) {
  const int64_t tiles = std::max<int64_t>(1, kRowBlockFloats / (job.PaddedK() * job.tile_rows));
  job.block_rows = tiles * job.tile_rows;
  job.row_blocks = (job.x.rows + job.block_rows - 1) / job.block_rows;
  const int64_t wanted = threads == 1 ? 1 : (4 * threads + job.row_blocks - 1) / job.row_blocks;
  job.panel_chunks = std::min(job.panels, wanted);
}

}  // namespace

void CpuBackend::MatMul(const MatMulParams& params) {
  CHECK_LE(params.outs.size(), kMaxParts);
  MatMulJob job;
  job.x = Map(params.x);
  MatMulPart parts[kMaxParts];
  for (size_t i = 0; i < params.outs.size(); ++i) {
    parts[i] = PartOf(params.outs[i], job.x);
    job.panels += parts[i].weight->panels();
  }
  if (job.x.rows == 0 || job.panels == 0) return;
  job.parts = {parts, params.outs.size()};
  job.activation = params.activation;
  job.add_to_out = params.add_to_out;
  job.tile_rows = HWY_DYNAMIC_DISPATCH(MatMulTileRows)();
  float* packed = context_.Floats(RoundUp(job.x.rows, job.tile_rows) * job.PaddedK());
  job.packed = packed;
  const int64_t tiles = (job.x.rows + job.tile_rows - 1) / job.tile_rows;
  context_.ForRows(tiles, job.tile_rows * job.x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * job.tile_rows; row < std::min(end * job.tile_rows, job.x.rows);
         row += job.tile_rows) {
      PackTile(job.x, row, std::min(job.tile_rows, job.x.rows - row), packed + row * job.PaddedK());
    }
  });
  Schedule(job, pool_.threads());
  const auto task_fn = HWY_DYNAMIC_DISPATCH(MatMulTask);
  pool_.Run(static_cast<int>(job.row_blocks * job.panel_chunks),
            [&](int task) { task_fn(job, task); });
}

const char* TargetName() { return HWY_DYNAMIC_DISPATCH(NameOfTarget)(); }

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
