#pragma once

#include <vector>

#include "common/metrics/metrics.h"
#include "services/decode/engine/engine_stats.h"

namespace tessera::decode {

// The engine's numbers as series of the metrics registry, all at 0 from the start. The engine
// counts without knowing of metrics; whoever is about to read the registry calls Update. One thread
// at a time.
class DecodeMetrics {
 public:
  // `metrics` outlives it.
  explicit DecodeMetrics(metrics::Metrics& metrics);

  // Brings gauges to what `now` says and adds to counters what has come since the last Update.
  void Update(const EngineStats& now);

 private:
  struct Total {
    metrics::Counter counter;
    int64_t EngineStats::*count;
  };

  const metrics::Gauge running_, waiting_, usage_, blocks_used_, blocks_cached_, blocks_free_;
  const metrics::Counter prompt_cached_;
  std::vector<Total> totals_;
  EngineStats last_;
};

}  // namespace tessera::decode
