#include "common/ops/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/list_directory.h"
#include "common/metrics/names.h"

namespace tessera::ops {
namespace {

std::string TextOf(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<ProcessStat> ReadStat() { return ParseProcessStat(TextOf("/proc/self/stat")); }

// Unix time, in seconds; 0: not told.
double BootTime() {
  constexpr absl::string_view kKey = "btime ";
  for (absl::string_view line : absl::StrSplit(TextOf("/proc/stat"), '\n')) {
    double seconds = 0;
    if (absl::StartsWith(line, kKey) && absl::SimpleAtod(line.substr(kKey.size()), &seconds)) {
      return seconds;
    }
  }
  return 0;
}

double Seconds(int64_t ticks) {
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

int64_t OpenFiles() {
  // One is the directory itself; where it cannot be read there is none.
  return static_cast<int64_t>(base::ListDirectory("/proc/self/fd").size()) - 1;
}

}  // namespace

std::optional<ProcessStat> ParseProcessStat(absl::string_view text) {
  const size_t name_end = text.rfind(')');
  if (name_end == text.npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(text.substr(name_end + 1), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  // Counted as proc(5) does; the first behind the name is field 3.
  const auto field = [&](size_t number, int64_t& value) {
    return number - 3 < fields.size() && absl::SimpleAtoi(fields[number - 3], &value);
  };
  ProcessStat stat;
  int64_t user = 0, system = 0;
  if (!field(14, user) || !field(15, system) || !field(22, stat.start_ticks) ||
      !field(23, stat.virtual_bytes) || !field(24, stat.resident_pages)) {
    return std::nullopt;
  }
  stat.cpu_ticks = user + system;
  return stat;
}

ProcessMetrics::ProcessMetrics(metrics::Metrics& metrics)
    : cpu_(metrics.GetCounter(metrics::kProcessCpuSeconds)),
      resident_(metrics.GetGauge(metrics::kProcessResidentMemory)),
      virtual_(metrics.GetGauge(metrics::kProcessVirtualMemory)),
      open_files_(metrics.GetGauge(metrics::kProcessOpenFds)),
      max_files_(metrics.GetGauge(metrics::kProcessMaxFds)),
      start_(metrics.GetGauge(metrics::kProcessStartTime)) {
  if (const auto stat = ReadStat()) start_.Set(BootTime() + Seconds(stat->start_ticks));
}

void ProcessMetrics::Update() {
  if (const auto stat = ReadStat()) {
    const double more = Seconds(stat->cpu_ticks) - cpu_.value();
    if (more > 0) cpu_.Increment(more);
    virtual_.Set(static_cast<double>(stat->virtual_bytes));
    resident_.Set(static_cast<double>(stat->resident_pages) *
                  static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  if (const int64_t files = OpenFiles(); files >= 0) open_files_.Set(static_cast<double>(files));
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) max_files_.Set(static_cast<double>(limit.rlim_cur));
}

}  // namespace tessera::ops
