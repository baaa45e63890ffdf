#include "services/decode/decode_metrics.h"

#include "common/metrics/names.h"

namespace tessera::decode {

DecodeMetrics::DecodeMetrics(metrics::Metrics& metrics)
    : running_(metrics.GetGauge(metrics::kDecodeRequestsRunning)),
      waiting_(metrics.GetGauge(metrics::kDecodeRequestsWaiting)),
      usage_(metrics.GetGauge(metrics::kDecodeKvCacheUsage)),
      blocks_used_(metrics.GetGauge(metrics::kDecodeKvCacheBlocks, {"used"})),
      blocks_cached_(metrics.GetGauge(metrics::kDecodeKvCacheBlocks, {"cached"})),
      blocks_free_(metrics.GetGauge(metrics::kDecodeKvCacheBlocks, {"free"})),
      prompt_cached_(metrics.GetCounter(metrics::kDecodePromptTokens, {"cached"})) {
  const auto add = [&](int64_t EngineStats::*count, const metrics::CounterName& name,
                       metrics::Metrics::LabelValues labels = {}) {
    totals_.push_back({metrics.GetCounter(name, labels), count});
  };
  add(&EngineStats::prompt_tokens, metrics::kDecodePromptTokens, {"computed"});
  add(&EngineStats::generation_tokens, metrics::kDecodeGenerationTokens);
  add(&EngineStats::prefix_queries, metrics::kDecodePrefixCacheQueries);
  add(&EngineStats::prefix_hits, metrics::kDecodePrefixCacheHits);
  add(&EngineStats::prefix_evicted, metrics::kDecodePrefixCacheEvictedTokens);
  add(&EngineStats::ahead_used, metrics::kDecodeAheadTokens, {"used"});
  add(&EngineStats::ahead_wasted, metrics::kDecodeAheadTokens, {"wasted"});
  add(&EngineStats::preemptions, metrics::kDecodePreemptions);
  add(&EngineStats::nonfinite_logits, metrics::kDecodeNonfiniteLogits);
  add(&EngineStats::finished_stop, metrics::kDecodeRequestsFinished, {"stop"});
  add(&EngineStats::finished_length, metrics::kDecodeRequestsFinished, {"length"});
  add(&EngineStats::finished_abort, metrics::kDecodeRequestsFinished, {"abort"});
  add(&EngineStats::finished_error, metrics::kDecodeRequestsFinished, {"error"});
}

void DecodeMetrics::Update(const EngineStats& now) {
  running_.Set(static_cast<double>(now.running));
  waiting_.Set(static_cast<double>(now.waiting));
  blocks_used_.Set(static_cast<double>(now.blocks_used));
  blocks_cached_.Set(static_cast<double>(now.blocks_cached));
  blocks_free_.Set(static_cast<double>(now.blocks_total - now.blocks_used - now.blocks_cached));
  usage_.Set(now.blocks_total > 0
                 ? static_cast<double>(now.blocks_used) / static_cast<double>(now.blocks_total)
                 : 0);
  for (const Total& total : totals_) {
    total.counter.Increment(static_cast<double>(now.*total.count - last_.*total.count));
  }
  prompt_cached_.Increment(static_cast<double>(now.prefix_hits - last_.prefix_hits));
  last_ = now;
}

}  // namespace tessera::decode
