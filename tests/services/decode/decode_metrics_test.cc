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
        "tessera_decode_request_queue_seconds_count{model_name=\"m\"} 0",
        "tessera_decode_request_prefill_seconds_count{model_name=\"m\"} 0",
        "tessera_decode_request_decode_seconds_count{model_name=\"m\"} 0",
        "tessera_decode_step_tokens_count{model_name=\"m\",phase=\"prefill\"} 0",
        "tessera_decode_step_tokens_count{model_name=\"m\",phase=\"decode\"} 0",
        "tessera_decode_step_duration_seconds_count{model_name=\"m\",phase=\"mixed\"} 0",
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

TEST(DecodeMetricsTest, AStepCountsInItsPhase) {
  metrics::Metrics registry("m");
  DecodeMetrics series(registry);
  const EngineObserver observer = series.Observer();
  observer.stepped({100, 0, absl::Seconds(1)});
  observer.stepped({20, 5, absl::Seconds(2)});
  observer.stepped({0, 8, absl::Seconds(3)});
  observer.stepped({0, 8, absl::Seconds(4)});
  const std::string text = registry.Text();
  for (const char* line : {"tokens_sum{model_name=\"m\",phase=\"prefill\"} 100\n",
                           "tokens_sum{model_name=\"m\",phase=\"mixed\"} 25\n",
                           "tokens_sum{model_name=\"m\",phase=\"decode\"} 16\n",
                           "tokens_count{model_name=\"m\",phase=\"decode\"} 2\n",
                           "duration_seconds_sum{model_name=\"m\",phase=\"prefill\"} 1\n",
                           "duration_seconds_sum{model_name=\"m\",phase=\"mixed\"} 2\n",
                           "duration_seconds_sum{model_name=\"m\",phase=\"decode\"} 7\n"}) {
    EXPECT_THAT(text, HasSubstr(std::string("tessera_decode_step_") + line));
  }
}

TEST(DecodeMetricsTest, TimesOfAnAnswerCountAndOfAFailureOnlyItsWait) {
  metrics::Metrics registry("m");
  DecodeMetrics series(registry);
  const EngineObserver observer = series.Observer();
  Outcome outcome;
  outcome.queue = absl::Seconds(1);
  outcome.prefill = absl::Seconds(2);
  outcome.generation = absl::Seconds(3);
  observer.answered(absl::OkStatus(), outcome);
  observer.answered(absl::DeadlineExceededError("late"), outcome);
  const std::string text = registry.Text();
  for (const char* line :
       {"queue_seconds_sum{model_name=\"m\"} 2\n", "queue_seconds_count{model_name=\"m\"} 2\n",
        "prefill_seconds_sum{model_name=\"m\"} 2\n", "decode_seconds_sum{model_name=\"m\"} 3\n"}) {
    EXPECT_THAT(text, HasSubstr(std::string("tessera_decode_request_") + line));
  }
}

TEST(DecodeMetricsTest, TheShapeOfTheCacheIsTold) {
  metrics::Metrics registry("m");
  DecodeMetrics series(registry);
  series.SetCache({16, 512, "int8"});
  EXPECT_THAT(registry.Text(),
              HasSubstr("tessera_decode_cache_config_info{model_name=\"m\",block_size=\"16\","
                        "cache_dtype=\"int8\",num_blocks=\"512\"} 1\n"));
}

}  // namespace
}  // namespace tessera::decode
