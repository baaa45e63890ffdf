#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/metrics/metrics.h"
#include "kernels/backend.h"
#include "services/decode/engine/engine_observer.h"
#include "services/decode/engine/engine_stats.h"

namespace tessera::decode {

// The KV cache, for tessera_decode_cache_config_info.
struct CacheShape {
  int64_t block_size = 0;  // tokens
  int64_t blocks = 0;
  absl::string_view dtype;  // lower case
};

// The engine's numbers as series of the metrics registry, all at 0 from the start. The engine
// counts without knowing of metrics: totals are taken over by whoever is about to read the registry
// (Update, one thread at a time), times and sizes by an observer (any thread, nothing allocates).
class DecodeMetrics {
 public:
  // `metrics` outlives it.
  explicit DecodeMetrics(metrics::Metrics& metrics);
  void SetCache(const CacheShape& shape);
  // What this service holds on `device` ("cpu", "cuda:0"), beside what others of the process do.
  void SetMemory(absl::string_view device, const kernels::MemoryUse& memory);

  // Brings gauges to what `now` says and adds to counters what has come since the last Update.
  void Update(const EngineStats& now);
  void OnStep(const StepReport& step) const;
  void OnAnswer(const absl::Status& status, const Outcome& outcome) const;
  // Calls OnStep and OnAnswer; must not outlive this.
  EngineObserver Observer();

 private:
  struct Total {
    metrics::Counter counter;
    int64_t EngineStats::*count;
  };

  struct Phase {
    metrics::Histogram tokens, duration;
  };
  static Phase PhaseOf(metrics::Metrics& metrics, absl::string_view phase);

  metrics::Metrics& metrics_;
  const metrics::Gauge running_, waiting_, usage_, blocks_used_, blocks_cached_, blocks_free_;
  const metrics::Counter prompt_cached_;
  const Phase prefill_step_, decode_step_, mixed_step_;
  const metrics::Histogram queue_, prefill_, decode_;
  std::vector<Total> totals_;
  EngineStats last_stats_;
};

}  // namespace tessera::decode
