#include "common/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/metrics/names.h"

namespace tessera::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr CounterName kCounters[] = {kGatewayRequests,
                                     kGatewayRejectedRequests,
                                     kGatewayDegradedRequests,
                                     kGatewayClientCancellations,
                                     kVisionImages,
                                     kVisionBatches,
                                     kVisionRows,
                                     kVisionQuality,
                                     kEmbeddingCacheLookups,
                                     kEmbeddingCacheTransferredBytes,
                                     kEmbeddingCacheFailedWrites,
                                     kDecodePrefixCacheHits,
                                     kDecodePrefixCacheQueries,
                                     kDecodeNonfiniteLogits,
                                     kDecodePromptTokens,
                                     kDecodeGenerationTokens,
                                     kDecodeRequestsFinished,
                                     kDecodePreemptions,
                                     kDecodePrefixCacheEvictedTokens,
                                     kDecodeAheadTokens,
                                     kLogLinesDropped,
                                     kTraceSpansDropped,
                                     kProcessCpuSeconds,
                                     kGrpcServerCallsStarted};
constexpr GaugeName kGauges[] = {kGatewayInflightRequests,
                                 kGatewayQueuedRequests,
                                 kVisionQueuedImages,
                                 kEmbeddingCacheUp,
                                 kDecodeRequestsRunning,
                                 kDecodeRequestsWaiting,
                                 kDecodeKvCacheUsage,
                                 kDecodeKvCacheBlocks,
                                 kDecodeCacheConfigInfo,
                                 kDeviceMemory,
                                 kModelInfo,
                                 kModelLoadDuration,
                                 kCanaryPresent,
                                 kDraining,
                                 kStartTimestamp,
                                 kProcessResidentMemory,
                                 kProcessVirtualMemory,
                                 kProcessOpenFds,
                                 kProcessMaxFds,
                                 kProcessStartTime,
                                 kBuildInfo};
constexpr HistogramName kHistograms[] = {
    kGatewayRequestDuration,     kGatewayTimeToFirstToken,    kGatewayInterTokenLatency,
    kGatewayTimePerOutputToken,  kGatewayRequestPromptTokens, kGatewayRequestImageTokens,
    kGatewayRequestOutputTokens, kGatewayRequestImages,       kGatewayImageBytes,
    kVisionBatchImages,          kVisionStageDuration,        kEmbeddingCacheOperationDuration,
    kDecodeRequestQueue,         kDecodeRequestPrefill,       kDecodeRequestDecode,
    kDecodeStepTokens,           kDecodeStepDuration,         kGrpcServerCallDuration};

// Creates one series of each family, "v" for every label.
void CreateAll(Metrics& metrics) {
  const auto with_values = [](const Description& name, auto get) {
    const auto& labels = name.labels;
    const auto count = std::find(labels.begin(), labels.end(), nullptr) - labels.begin();
    if (count == 0) return get(Metrics::LabelValues{});
    if (count == 1) return get(Metrics::LabelValues{"v"});
    if (count == 2) return get(Metrics::LabelValues{"v", "v"});
    return get(Metrics::LabelValues{"v", "v", "v"});
  };
  for (const CounterName& name : kCounters) {
    with_values(name, [&](Metrics::LabelValues values) { metrics.GetCounter(name, values); });
  }
  for (const GaugeName& name : kGauges) {
    with_values(name, [&](Metrics::LabelValues values) { metrics.GetGauge(name, values); });
  }
  for (const HistogramName& name : kHistograms) {
    with_values(name, [&](Metrics::LabelValues values) { metrics.GetHistogram(name, values); });
  }
}

struct Series {
  std::string family;  // name without _bucket, _sum, _count
  std::string labels;
  double value;
};

// Reads the text form, line by line, failing on what is not of it.
std::vector<Series> Parse(const std::string& text, std::map<std::string, std::string>* types) {
  std::vector<Series> out;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "# ")) {
      const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
      if (words.size() != 4) {
        ADD_FAILURE() << line;
      } else if (words[1] == "TYPE") {
        EXPECT_TRUE(types->emplace(words[2], words[3]).second) << "a family twice: " << line;
      }
      continue;
    }
    const size_t open = line.find('{'), close = line.rfind("} ");
    Series series;
    if (open == line.npos || close == line.npos || close < open ||
        !absl::SimpleAtod(line.substr(close + 2), &series.value)) {
      ADD_FAILURE() << "no series: " << line;
      continue;
    }
    series.family = std::string(line.substr(0, open));
    series.labels = std::string(line.substr(open + 1, close - open - 1));
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      const std::string stem(absl::StripSuffix(series.family, suffix));
      if (stem != series.family && types->count(stem) && types->at(stem) == "histogram") {
        series.family = stem;
      }
    }
    EXPECT_TRUE(types->count(series.family)) << "no TYPE before " << line;
    out.push_back(series);
  }
  return out;
}

TEST(MetricsTest, TextFormParsesAndEverySeriesStartsAtZero) {
  Metrics metrics("shelf");
  CreateAll(metrics);
  std::map<std::string, std::string> types;
  const std::vector<Series> series = Parse(metrics.Text(), &types);
  EXPECT_EQ(types.size(), std::size(kCounters) + std::size(kGauges) + std::size(kHistograms));
  for (const Series& one : series) {
    EXPECT_EQ(one.value, 0) << one.family;
    EXPECT_THAT(one.labels, HasSubstr("model_name=\"shelf\""));
  }
}

TEST(MetricsTest, NamesFollowTheRules) {
  Metrics metrics("shelf");
  CreateAll(metrics);
  std::map<std::string, std::string> types;
  Parse(metrics.Text(), &types);
  for (const auto& [name, type] : types) {
    EXPECT_TRUE(absl::StartsWith(name, "tessera_") || absl::StartsWith(name, "grpc_server_") ||
                absl::StartsWith(name, "process_"));
    EXPECT_EQ(absl::EndsWith(name, "_total"), type == "counter") << name;
    EXPECT_THAT(name, Not(HasSubstr("millis")));
    for (char c : name) EXPECT_TRUE(std::islower(c) || std::isdigit(c) || c == '_') << name;
  }
}

// A series that is added to names.h is also added to the lists above.
TEST(MetricsTest, EveryNameIsTested) {
  std::ifstream file("common/metrics/names.h");
  std::string line;
  size_t declared = 0;
  while (std::getline(file, line)) {
    declared += absl::StrContains(line, "Name k") && absl::StartsWith(line, "inline constexpr ");
  }
  EXPECT_EQ(declared, std::size(kCounters) + std::size(kGauges) + std::size(kHistograms));
}

TEST(MetricsTest, BucketsRise) {
  for (const HistogramName& name : kHistograms) {
    ASSERT_FALSE(name.buckets.empty()) << name.name;
    for (size_t i = 1; i < name.buckets.size(); ++i) {
      EXPECT_LT(name.buckets[i - 1], name.buckets[i]) << name.name;
    }
  }
}

TEST(MetricsTest, TheSameLabelsAreTheSameSeries) {
  Metrics metrics("m");
  metrics.GetCounter(kVisionRows, {"kept"}).Increment(2);
  metrics.GetCounter(kVisionRows, {"kept"}).Increment();
  EXPECT_EQ(metrics.GetCounter(kVisionRows, {"kept"}).value(), 3);
  EXPECT_EQ(metrics.GetCounter(kVisionRows, {"produced"}).value(), 0);
  EXPECT_EQ(Metrics("m").GetCounter(kVisionRows, {"kept"}).value(), 0);  // no global registry
}

TEST(MetricsTest, GaugesAndHistogramsShowTheirValues) {
  Metrics metrics("m");
  const Gauge gauge = metrics.GetGauge(kDraining);
  gauge.Set(3);
  gauge.Add(-1);
  metrics.GetHistogram(kVisionBatchImages).Observe(5);
  EXPECT_EQ(gauge.value(), 2);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("tessera_draining{model_name=\"m\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("tessera_vision_batch_images_sum{model_name=\"m\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("tessera_vision_batch_images_bucket{model_name=\"m\",le=\"4\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("tessera_vision_batch_images_bucket{model_name=\"m\",le=\"6\"} 1\n"));
}

TEST(MetricsTest, LabelValuesAreEscaped) {
  Metrics metrics("a \"b\"\\\nc");
  metrics.GetGauge(kDraining);
  EXPECT_THAT(metrics.Text(), HasSubstr(R"(model_name="a \"b\"\\\nc")"));
}

TEST(MetricsTest, ManyThreadsLoseNoIncrement) {
  Metrics metrics("m");
  const Counter counter = metrics.GetCounter(kVisionBatches);
  const Histogram histogram = metrics.GetHistogram(kVisionBatchImages);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        counter.Increment();
        histogram.Observe(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 40'000);
  EXPECT_THAT(metrics.Text(),
              HasSubstr("tessera_vision_batch_images_count{model_name=\"m\"} 40000\n"));
}

// FAULTS B094.
TEST(MetricsTest, SeriesMayBeAddedWhileOthersAreRead) {
  Metrics metrics("m");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string version = absl::StrCat(t, ".", i);
        metrics.GetGauge(kBuildInfo, {version}).Set(1);
        EXPECT_THAT(metrics.Text(), HasSubstr(absl::StrCat("version=\"", version, "\"} 1\n")));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MetricsDeathTest, AWrongNumberOfLabelValuesIsOurBug) {
  Metrics metrics("m");
  EXPECT_DEATH(metrics.GetCounter(kVisionRows), "CHECK failed");
  EXPECT_DEATH(metrics.GetCounter(kVisionBatches, {"one"}), "CHECK failed");
}

}  // namespace
}  // namespace tessera::metrics
