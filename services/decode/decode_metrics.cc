#include "services/decode/decode_metrics.h"

#include "absl/strings/str_cat.h"
#include "common/metrics/names.h"

namespace tessera::decode {

DecodeMetrics::Phase DecodeMetrics::PhaseOf(metrics::Metrics& metrics, absl::string_view phase) {
  return {metrics.GetHistogram(metrics::kDecodeStepTokens, {phase}),
          metrics.GetHistogram(metrics::kDecodeStepDuration, {phase})};
}

DecodeMetrics::DecodeMetrics(metrics::Metrics& metrics)
    : metrics_(metrics),
      running_(metrics.GetGauge(metrics::kDecodeRequestsRunning)),
      waiting_(metrics.GetGauge(metrics::kDecodeRequestsWaiting)),
      usage_(metrics.GetGauge(metrics::kDecodeKvCacheUsage)),
      blocks_used_(metrics.GetGauge(metrics::kDecodeKvCacheBlocks, {"used"})),
      blocks_cached_(metrics.GetGauge(metrics::kDecodeKvCacheBlocks, {"cached"})),
      blocks_free_(metrics.GetGauge(metrics::kDecodeKvCacheBlocks, {"free"})),
      prompt_cached_(metrics.GetCounter(metrics::kDecodePromptTokens, {"cached"})),
      prefill_step_(PhaseOf(metrics, "prefill")),
      decode_step_(PhaseOf(metrics, "decode")),
      mixed_step_(PhaseOf(metrics, "mixed")),
      queue_(metrics.GetHistogram(metrics::kDecodeRequestQueue)),
      prefill_(metrics.GetHistogram(metrics::kDecodeRequestPrefill)),
      decode_(metrics.GetHistogram(metrics::kDecodeRequestDecode)) {
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
    total.counter.Increment(static_cast<double>(now.*total.count - last_stats_.*total.count));
  }
  prompt_cached_.Increment(static_cast<double>(now.prefix_hits - last_stats_.prefix_hits));
  last_stats_ = now;
}

void DecodeMetrics::SetCache(const CacheShape& shape) {
  metrics_
      .GetGauge(metrics::kDecodeCacheConfigInfo,
                {absl::StrCat(shape.block_size), absl::StrCat(shape.blocks), shape.dtype})
      .Set(1);
}

void DecodeMetrics::SetMemory(absl::string_view device, const kernels::MemoryUse& memory) {
  const auto add = [&](const char* kind, size_t bytes) {
    metrics_.GetGauge(metrics::kDeviceMemory, {device, kind}).Add(static_cast<double>(bytes));
  };
  add("weights", memory.weights);
  add("kv_cache", memory.kv_cache);
  add("workspace", memory.buffers);
  add("other", 0);
}

void DecodeMetrics::OnStep(const StepReport& step) const {
  const Phase& phase = step.decode_tokens == 0   ? prefill_step_
                       : step.prompt_tokens == 0 ? decode_step_
                                                 : mixed_step_;
  phase.tokens.Observe(static_cast<double>(step.prompt_tokens + step.decode_tokens));
  phase.duration.Observe(absl::ToDoubleSeconds(step.duration));
}

void DecodeMetrics::OnAnswer(const absl::Status& status, const Outcome& outcome) const {
  queue_.Observe(absl::ToDoubleSeconds(outcome.queue));
  if (!status.ok()) return;
  prefill_.Observe(absl::ToDoubleSeconds(outcome.prefill));
  decode_.Observe(absl::ToDoubleSeconds(outcome.generation));
}

EngineObserver DecodeMetrics::Observer() {
  return {
      [this](const StepReport& step) { OnStep(step); },
      [this](const absl::Status& status, const Outcome& outcome) { OnAnswer(status, outcome); }};
}

}  // namespace tessera::decode
