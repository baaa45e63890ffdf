#include "kernels/host/plan_checks.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/memory.h"

namespace tessera::kernels::reference {
namespace {

// Turns every head of `row` in place.
void Turn(float* row, int heads, int head_dim, const float* cos, const float* sin) {
  const int half = head_dim / 2;
  for (int h = 0; h < heads; ++h) {
    for (int i = 0; i < half; ++i) {
      float& a = row[h * head_dim + i];
      float& b = row[h * head_dim + i + half];
      const double x = a, y = b;
      a = static_cast<float>(x * double{cos[i]} - y * double{sin[i]});
      b = static_cast<float>(y * double{cos[i]} + x * double{sin[i]});
    }
  }
}

}  // namespace

void ReferenceBackend::RotaryAngles(const RotaryAnglesParams& params) {
  const HostView cos = Map(params.cos), sin = Map(params.sin);
  CheckAngles(params);
  for (int64_t t = 0; t < cos.rows; ++t) AnglesOfToken(params, t, cos.row(t), sin.row(t));
}

void ReferenceBackend::RotaryKvWrite(const RotaryKvParams& params) {
  const HostView q = Map(params.q), k = Map(params.k), v = Map(params.v);
  const HostView cos = Map(params.cos), sin = Map(params.sin);
  Cache& cache = Object<Cache>(*params.cache);
  const KvCacheSpec& spec = cache.spec();
  CheckRotary(params, spec);
  std::vector<float> key(static_cast<size_t>(k.cols));
  for (int64_t t = 0; t < q.rows; ++t) {
    Turn(q.row(t), static_cast<int>(q.cols / spec.head_dim), spec.head_dim, cos.row(t), sin.row(t));
    key.assign(k.row(t), k.row(t) + k.cols);
    Turn(key.data(), spec.kv_heads, spec.head_dim, cos.row(t), sin.row(t));
    for (int h = 0; h < spec.kv_heads; ++h) {
      const int at = h * spec.head_dim;
      cache.Write(Cache::kKey, params.layer, params.slots[t], h, key.data() + at);
      cache.Write(Cache::kValue, params.layer, params.slots[t], h, v.row(t) + at);
    }
  }
}

}  // namespace tessera::kernels::reference
