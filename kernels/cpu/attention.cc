#include <algorithm>

#include "kernels/cpu/attend.h"
#include "kernels/cpu/backend.h"
#include "kernels/host/plan_checks.h"

namespace tessera::kernels::cpu {
namespace {

HostView RowsOf(const HostView& view, int64_t begin, int64_t end) {
  return {view.row(begin), end - begin, view.cols, view.stride};
}

int64_t TasksFor(int64_t rows) { return (rows + kMaxQueryRows - 1) / kMaxQueryRows; }

// first[s] = number of the first task of segment s; returns how many there are in all.
template <typename RowsOfSegment>
int64_t CountTasks(int64_t segments, RowsOfSegment rows, int32_t* first) {
  int64_t total = 0;
  for (int64_t s = 0; s < segments; ++s) {
    first[s] = static_cast<int32_t>(total);
    total += rows(s);
  }
  return total;
}

// The segment that `task` belongs to.
int64_t SegmentOf(const int32_t* first, int64_t segments, int64_t task) {
  return std::upper_bound(first, first + segments, task) - first - 1;
}

// Floats that PackKv takes.
int64_t PackedKvFloats(int64_t keys, int head_dim) {
  return RoundUp(keys, kUnit) * (head_dim + RoundUp(head_dim, kUnit));
}

// Packs the rows of k and v, columns [column, column + head_dim), into `memory` as f32 in blocks of
// 16 keys.
KvView PackKv(const HostView& k, const HostView& v, int64_t column, int head_dim, float* memory) {
  KvView view;
  view.data = memory;
  view.block_size = static_cast<int>(kUnit);
  view.units_per_block = 1;
  view.head_dim = head_dim;
  view.value_stride = RoundUp(head_dim, kUnit);
  view.value_offset = kUnit * head_dim;
  view.block_stride = kUnit * (head_dim + view.value_stride);
  for (int64_t j = 0; j < k.rows; ++j) {
    float* block = memory + j / kUnit * view.block_stride;
    const float* key = k.row(j) + column;
    for (int i = 0; i < head_dim; ++i) block[i * kUnit + j % kUnit] = key[i];
    std::copy_n(v.row(j) + column, head_dim,
                block + view.value_offset + j % kUnit * view.value_stride);
  }
  return view;
}

void SetRows(AttendJob& job, int64_t piece) {
  const int64_t rows = job.q.rows * job.group;
  job.begin = piece * kMaxQueryRows;
  job.end = std::min(rows, job.begin + kMaxQueryRows);
}

}  // namespace

void CpuBackend::PagedAttention(const PagedAttentionParams& params) {
  const HostView q = Map(params.q), out = Map(params.out);
  const Cache& cache = Object<Cache>(*params.cache);
  const KvCacheSpec& spec = cache.spec();
  CheckPaged(params, spec);
  const int group = params.heads / spec.kv_heads;
  const auto sequences = static_cast<int64_t>(params.context.size());
  auto rows_of = [&](int64_t s) { return params.query_begin[s + 1] - params.query_begin[s]; };
  int32_t* first = context_.Ints(sequences);
  const int64_t tasks = CountTasks(
      sequences, [&](int64_t s) { return TasksFor(rows_of(s) * group) * spec.kv_heads; }, first);
  pool_.Run(static_cast<int>(tasks), [&](int task) {
    const int64_t s = SegmentOf(first, sequences, task);
    const int kv_head = (task - first[s]) % spec.kv_heads;
    AttendJob job;
    job.kv = cache.Head(params.layer, kv_head);
    job.kv.table = params.block_table.data() + s * params.table_width;
    job.dtype = spec.dtype;
    job.q = RowsOf(q, params.query_begin[s], params.query_begin[s + 1]);
    job.out = RowsOf(out, params.query_begin[s], params.query_begin[s + 1]);
    job.first_column = int64_t{kv_head} * group * spec.head_dim;
    job.group = group;
    job.scale = params.scale;
    job.visible = params.context[s] - (rows_of(s) - 1);
    job.visible_step = 1;
    SetRows(job, (task - first[s]) / spec.kv_heads);
    Attend(job);
  });
}

void CpuBackend::PackedAttention(const PackedAttentionParams& params) {
  const HostView q = Map(params.q), k = Map(params.k), v = Map(params.v), out = Map(params.out);
  const int head_dim = CheckPacked(params);
  CHECK_LE(head_dim, kMaxHeadDim);
  const int64_t heads = params.heads;
  const auto segments = static_cast<int64_t>(params.query_begin.size()) - 1;
  auto keys_of = [&](int64_t s) { return params.key_begin[s + 1] - params.key_begin[s]; };
  auto rows_of = [&](int64_t s) { return params.query_begin[s + 1] - params.query_begin[s]; };
  // Each (segment, head) packs its keys and values once; a segment begins on a multiple of 16 keys.
  int32_t* first = context_.Ints(2 * segments);
  int32_t* first_key = first + segments;
  const int64_t padded_keys = CountTasks(
      segments, [&](int64_t s) { return RoundUp(keys_of(s), kUnit); }, first_key);
  float* memory = context_.Floats(PackedKvFloats(padded_keys, head_dim) * heads);
  auto pack = [&](int64_t s, int64_t head, bool write) {
    float* at = memory + PackedKvFloats(padded_keys, head_dim) * head +
                PackedKvFloats(first_key[s], head_dim);
    const int64_t begin = params.key_begin[s], end = write ? params.key_begin[s + 1] : begin;
    return PackKv(RowsOf(k, begin, end), RowsOf(v, begin, end), head * head_dim, head_dim, at);
  };
  pool_.Run(static_cast<int>(segments * heads),
            [&](int task) { pack(task / heads, task % heads, true); });
  const int64_t tasks = CountTasks(
      segments, [&](int64_t s) { return TasksFor(rows_of(s)) * heads; }, first);
  pool_.Run(static_cast<int>(tasks), [&](int task) {
    const int64_t s = SegmentOf(first, segments, task);
    const int64_t head = (task - first[s]) % heads;
    AttendJob job;
    job.kv = pack(s, head, false);
    job.q = RowsOf(q, params.query_begin[s], params.query_begin[s + 1]);
    job.out = RowsOf(out, params.query_begin[s], params.query_begin[s + 1]);
    job.first_column = head * head_dim;
    job.scale = params.scale;
    job.visible = keys_of(s);
    SetRows(job, (task - first[s]) / heads);
    Attend(job);
  });
}

void CpuBackend::CopyKvBlocks(const KvCache& cache, absl::Span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) Object<Cache>(cache).CopyBlock(copy);
}

}  // namespace tessera::kernels::cpu
