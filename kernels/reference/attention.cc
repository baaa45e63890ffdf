#include <cmath>
#include <limits>
#include <vector>

#include "kernels/host/plan_checks.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/memory.h"

namespace tessera::kernels::reference {
namespace {

// softmax(scale q k^T) v over `keys` keys; key(j, d) and value(j, d) read one element.
template <typename Key, typename Value>
void Attend(const float* q, int head_dim, double scale, int64_t keys, Key key, Value value,
            float* out) {
  std::vector<double> weight(static_cast<size_t>(keys));
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t j = 0; j < keys; ++j) {
    double score = 0;
    for (int d = 0; d < head_dim; ++d) score += double{q[d]} * key(j, d);
    weight[j] = score * scale;
    largest = std::fmax(largest, weight[j]);
  }
  for (double& w : weight) total += w = std::exp(w - largest);
  for (int d = 0; d < head_dim; ++d) {
    double sum = 0;
    for (int64_t j = 0; j < keys; ++j) sum += weight[j] * value(j, d);
    out[d] = static_cast<float>(sum / total);
  }
}

// The keys or values of a sequence and head: [keys, head_dim].
std::vector<double> ReadHead(const Cache& cache, Cache::Part part,
                             const PagedAttentionParams& params, size_t s, int kv_head) {
  const KvCacheSpec& spec = cache.spec();
  const int64_t keys = params.context[s];
  const int32_t* table = params.block_table.data() + s * params.table_width;
  std::vector<double> out(static_cast<size_t>(keys * spec.head_dim));
  for (int64_t j = 0; j < keys; ++j) {
    const int64_t block = table[j / spec.block_size];
    cache.Read(part, params.layer, block * spec.block_size + j % spec.block_size, kv_head,
               out.data() + j * spec.head_dim);
  }
  return out;
}

}  // namespace

void ReferenceBackend::PagedAttention(const PagedAttentionParams& params) {
  const HostView q = Map(params.q), out = Map(params.out);
  const Cache& cache = Object<Cache>(*params.cache);
  const KvCacheSpec& spec = cache.spec();
  CheckPaged(params, spec);
  const int group = params.heads / spec.kv_heads, head_dim = spec.head_dim;
  for (size_t s = 0; s < params.context.size(); ++s) {
    const int64_t begin = params.query_begin[s], end = params.query_begin[s + 1];
    if (begin == end) continue;
    for (int kv_head = 0; kv_head < spec.kv_heads; ++kv_head) {
      const std::vector<double> k = ReadHead(cache, Cache::kKey, params, s, kv_head);
      const std::vector<double> v = ReadHead(cache, Cache::kValue, params, s, kv_head);
      pool_.Run(static_cast<int>((end - begin) * group), [&](int task) {
        const int64_t row = begin + task / group;
        const int at = (kv_head * group + task % group) * head_dim;
        Attend(
            q.row(row) + at, head_dim, params.scale, params.context[s] - (end - 1 - row),
            [&](int64_t j, int d) { return k[j * head_dim + d]; },
            [&](int64_t j, int d) { return v[j * head_dim + d]; }, out.row(row) + at);
      });
    }
  }
}

void ReferenceBackend::PackedAttention(const PackedAttentionParams& params) {
  const HostView q = Map(params.q), k = Map(params.k), v = Map(params.v), out = Map(params.out);
  const int head_dim = CheckPacked(params);
  for (size_t s = 0; s + 1 < params.query_begin.size(); ++s) {
    const int64_t begin = params.query_begin[s], end = params.query_begin[s + 1];
    const int64_t first_key = params.key_begin[s];
    pool_.Run(static_cast<int>((end - begin) * params.heads), [&](int task) {
      const int64_t row = begin + task / params.heads;
      const int at = task % params.heads * head_dim;
      Attend(
          q.row(row) + at, head_dim, params.scale, params.key_begin[s + 1] - first_key,
          [&](int64_t j, int d) { return double{k.row(first_key + j)[at + d]}; },
          [&](int64_t j, int d) { return double{v.row(first_key + j)[at + d]}; },
          out.row(row) + at);
    });
  }
}

void ReferenceBackend::CopyKvBlocks(const KvCache& cache, absl::Span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) Object<Cache>(cache).CopyBlock(copy);
}

}  // namespace tessera::kernels::reference
