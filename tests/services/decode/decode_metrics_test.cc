#include "services/decode/decode_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tessera::decode {
namespace {

using ::testing::HasSubstr;

TEST(DecodeMetricsTest, EverySeriesIsThereAtZeroFromTheStart) {
  metrics::Metrics registry("m");
  const DecodeMetrics series(registry);
  const std::string text = registry.Text();
  for (const char* line :
       {"tessera_decode_requests_running{model_name=\"m\"} 0",
        "tessera_decode_kv_cache_blocks{model_name=\"m\",state=\"cached\"} 0",
        "tessera_decode_prefix_cache_queries_total{model_name=\"m\"} 0",
        "tessera_decode_prefix_cache_hits_total{model_name=\"m\"} 0",
        "tessera_decode_prefix_cache_evicted_tokens_total{model_name=\"m\"} 0",
        "tessera_decode_ahead_tokens_total{model_name=\"m\",outcome=\"wasted\"} 0",
        "tessera_decode_requests_finished_total{model_name=\"m\",finished_reason=\"abort\"} 0"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(DecodeMetricsTest, CountersGrowByWhatHasComeAndGaugesSayWhatIs) {
  metrics::Metrics registry("m");
  DecodeMetrics series(registry);
  EngineStats stats;
  stats.running = 3;
  stats.blocks_total = 10;
  stats.blocks_used = 4;
  stats.blocks_cached = 5;
  stats.prefix_queries = 100;
  stats.prefix_hits = 60;
  stats.ahead_used = 16;
  stats.finished_stop = 2;
  series.Update(stats);
  series.Update(stats);
  stats.running = 1;
  stats.prefix_queries = 150;
  stats.prefix_hits = 70;
  series.Update(stats);
  const std::string text = registry.Text();
  for (const char* line :
       {"tessera_decode_requests_running{model_name=\"m\"} 1",
        "tessera_decode_kv_cache_usage_ratio{model_name=\"m\"} 0.4",
        "tessera_decode_kv_cache_blocks{model_name=\"m\",state=\"used\"} 4",
        "tessera_decode_kv_cache_blocks{model_name=\"m\",state=\"cached\"} 5",
        "tessera_decode_kv_cache_blocks{model_name=\"m\",state=\"free\"} 1",
        "tessera_decode_prefix_cache_queries_total{model_name=\"m\"} 150",
        "tessera_decode_prefix_cache_hits_total{model_name=\"m\"} 70",
        "tessera_decode_prompt_tokens_total{model_name=\"m\",source=\"cached\"} 70",
        "tessera_decode_ahead_tokens_total{model_name=\"m\",outcome=\"used\"} 16",
        "tessera_decode_requests_finished_total{model_name=\"m\",finished_reason=\"stop\"} 2"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace tessera::decode
