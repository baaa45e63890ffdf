#include "common/ops/process_metrics.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/metrics/names.h"

namespace tessera::ops {
namespace {

// Fields 3 to 24 of proc(5): utime 30, stime 12, starttime 900, vsize 4096000, rss 77.
constexpr char kFields[] = " S 1 2 3 4 5 6 7 8 9 10 30 12 15 16 17 18 19 20 900 4096000 77 99\n";

TEST(ParseProcessStatTest, ReadsTheFieldsBehindAnyName) {
  for (const char* name : {"tessera", "a b", "x) S 1 2 (", ")", ""}) {
    const auto stat = ParseProcessStat(absl::StrCat("7 (", name, ")", kFields));
    ASSERT_TRUE(stat.has_value()) << name;
    EXPECT_EQ(stat->cpu_ticks, 42);
    EXPECT_EQ(stat->start_ticks, 900);
    EXPECT_EQ(stat->virtual_bytes, 4096000);
    EXPECT_EQ(stat->resident_pages, 77);
  }
}

TEST(ParseProcessStatTest, RefusesWhatIsShortOrNoNumber) {
  const std::string good = absl::StrCat("7 (x)", kFields);
  EXPECT_FALSE(ParseProcessStat(""));
  EXPECT_FALSE(ParseProcessStat("7 (x"));
  EXPECT_FALSE(ParseProcessStat("7 (x)"));
  for (size_t size = 0; size < good.size() - 6; ++size) {
    EXPECT_FALSE(ParseProcessStat(good.substr(0, size))) << size;
  }
  std::string wrong = good;
  wrong.replace(wrong.find("900"), 3, "9x0");
  EXPECT_FALSE(ParseProcessStat(wrong));
}

class ProcessMetricsTest : public ::testing::Test {
 protected:
  double OpenFiles() {
    process_.Update();
    return metrics_.GetGauge(metrics::kProcessOpenFds).value();
  }
  double Cpu() {
    process_.Update();
    return metrics_.GetCounter(metrics::kProcessCpuSeconds).value();
  }

  metrics::Metrics metrics_{"m"};
  ProcessMetrics process_{metrics_};
};

TEST_F(ProcessMetricsTest, CountsWhatThisProcessHas) {
  const double before = OpenFiles();
  EXPECT_GE(before, 3);
  const int opened = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(OpenFiles(), before + 1);
  close(opened);
  EXPECT_EQ(OpenFiles(), before);
  EXPECT_GT(metrics_.GetGauge(metrics::kProcessMaxFds).value(), before);
  const double resident = metrics_.GetGauge(metrics::kProcessResidentMemory).value();
  EXPECT_GT(resident, 1e6);
  EXPECT_GT(metrics_.GetGauge(metrics::kProcessVirtualMemory).value(), resident);
}

TEST_F(ProcessMetricsTest, CpuTimeRises) {
  const double before = Cpu();
  volatile double sink = 1;
  while (Cpu() <= before) {  // ends with the next tick of the kernel's clock
    for (int i = 0; i < 100'000; ++i) sink = sink * 1.0000001;
  }
  EXPECT_GT(Cpu(), before);
}

TEST_F(ProcessMetricsTest, TheStartLiesBehindUsAndStays) {
  const double start = metrics_.GetGauge(metrics::kProcessStartTime).value();
  EXPECT_GT(start, absl::ToUnixSeconds(absl::Now()) - 86400 * 365);
  EXPECT_LE(start, absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()) + 60);
  process_.Update();
  EXPECT_EQ(metrics_.GetGauge(metrics::kProcessStartTime).value(), start);
}

}  // namespace
}  // namespace tessera::ops
