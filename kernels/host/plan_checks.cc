#include "kernels/host/plan_checks.h"

#include <cmath>

#include "common/base/check.h"

namespace tessera::kernels {
namespace {

int64_t SizeOfSpan(absl::Span<const int32_t> span) { return static_cast<int64_t>(span.size()); }

// Cumulative, from 0 to `rows`.
void CheckCumulative(absl::Span<const int32_t> begin, int64_t rows) {
  CHECK(!begin.empty());
  CHECK_EQ(begin.front(), 0);
  CHECK_EQ(begin.back(), rows);
  for (size_t s = 1; s < begin.size(); ++s) CHECK_LE(begin[s - 1], begin[s]);
}

}  // namespace

void CheckAngles(const RotaryAnglesParams& params) {
  const int64_t tokens = params.cos.rows, half = params.cos.cols;
  CHECK(params.sin.rows == tokens && params.sin.cols == half);
  const auto frequencies = static_cast<int64_t>(params.inverse_frequency.size());
  CHECK(half > 0 && frequencies % half == 0 && frequencies > 0);
  const int64_t sets = frequencies / half;
  if (!params.frequency_set.empty()) CHECK_EQ(SizeOfSpan(params.frequency_set), tokens);
  for (int32_t set : params.frequency_set) CHECK(set >= 0 && set < sets);
  CHECK_GE(SizeOfSpan(params.positions[0]), tokens);
  if (params.sections.empty()) return;
  int64_t dealt = 0;
  for (int32_t section : params.sections) dealt += section;
  CHECK_EQ(dealt, half);
  for (int axis = 1; axis < 3; ++axis) CHECK_GE(SizeOfSpan(params.positions[axis]), tokens);
}

void AnglesOfToken(const RotaryAnglesParams& params, int64_t t, float* cos, float* sin) {
  const int64_t half = params.cos.cols;
  const int64_t set = params.frequency_set.empty() ? 0 : params.frequency_set[t];
  const float* frequency = params.inverse_frequency.data() + set * half;
  size_t section = 0;
  int64_t section_end = params.sections.empty() ? half : params.sections[0];
  for (int64_t c = 0; c < half; ++c) {
    while (c >= section_end) section_end += params.sections[++section];
    const float theta = static_cast<float>(params.positions[section % 3][t]) * frequency[c];
    cos[c] = static_cast<float>(std::cos(double{theta}) * double{params.attention_scale});
    sin[c] = static_cast<float>(std::sin(double{theta}) * double{params.attention_scale});
  }
}

void CheckRotary(const RotaryKvParams& params, const KvCacheSpec& spec) {
  const int64_t tokens = params.q.rows;
  CHECK(params.k.rows == tokens && params.v.rows == tokens);
  CHECK(params.cos.rows == tokens && params.sin.rows == tokens);
  CHECK(params.cos.cols == spec.head_dim / 2 && params.sin.cols == spec.head_dim / 2);
  CHECK_EQ(spec.head_dim % 2, 0);
  CHECK_EQ(params.q.cols % spec.head_dim, 0);
  CHECK_EQ(params.k.cols, int64_t{spec.kv_heads} * spec.head_dim);
  CHECK_EQ(params.v.cols, params.k.cols);
  CHECK(params.layer >= 0 && params.layer < spec.layers);
  CHECK_EQ(SizeOfSpan(params.slots), tokens);
  const int64_t slots = spec.blocks * spec.block_size;
  for (int32_t slot : params.slots) CHECK(slot >= 0 && slot < slots);
}

void CheckPaged(const PagedAttentionParams& params, const KvCacheSpec& spec) {
  CHECK(params.heads > 0 && params.heads % spec.kv_heads == 0);
  CHECK_EQ(params.q.cols, int64_t{params.heads} * spec.head_dim);
  CHECK(params.out.cols == params.q.cols && params.out.rows == params.q.rows);
  CHECK(params.layer >= 0 && params.layer < spec.layers);
  CheckCumulative(params.query_begin, params.q.rows);
  const int64_t sequences = SizeOfSpan(params.query_begin) - 1;
  CHECK_EQ(SizeOfSpan(params.context), sequences);
  CHECK_GE(SizeOfSpan(params.block_table), sequences * params.table_width);
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t context = params.context[s];
    CHECK_GE(context, params.query_begin[s + 1] - params.query_begin[s]);
    const int64_t blocks = (context + spec.block_size - 1) / spec.block_size;
    CHECK_LE(blocks, params.table_width);
    for (int64_t b = 0; b < blocks; ++b) {
      const int32_t block = params.block_table[s * params.table_width + b];
      CHECK(block >= 0 && block < spec.blocks);
    }
  }
}

int CheckPacked(const PackedAttentionParams& params) {
  CHECK_GT(params.heads, 0);
  CHECK_EQ(params.q.cols % params.heads, 0);
  CHECK(params.k.cols == params.q.cols && params.v.cols == params.q.cols);
  CHECK(params.out.cols == params.q.cols && params.out.rows == params.q.rows);
  CHECK_EQ(params.k.rows, params.v.rows);
  CHECK_EQ(params.query_begin.size(), params.key_begin.size());
  CheckCumulative(params.query_begin, params.q.rows);
  CheckCumulative(params.key_begin, params.k.rows);
  return static_cast<int>(params.q.cols / params.heads);
}

}  // namespace tessera::kernels
