#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "common/metrics/metrics.h"

namespace tessera::ops {

// What /proc/<pid>/stat tells (proc(5)), in its own units.
struct ProcessStat {
  int64_t cpu_ticks = 0;    // user and system
  int64_t start_ticks = 0;  // since the machine's boot
  int64_t virtual_bytes = 0;
  int64_t resident_pages = 0;
};

// nullopt: not in that form. The name of the program, which is in it, may hold anything.
std::optional<ProcessStat> ParseProcessStat(absl::string_view text);

// The standard process_* series of this process. One thread at a time.
class ProcessMetrics {
 public:
  // `metrics` outlives it. All but the start are 0 until Update.
  explicit ProcessMetrics(metrics::Metrics& metrics);
  // Reads /proc. What cannot be read stays as it was.
  void Update();

 private:
  const metrics::Counter cpu_;
  const metrics::Gauge resident_, virtual_, open_files_, max_files_, start_;
};

}  // namespace tessera::ops
