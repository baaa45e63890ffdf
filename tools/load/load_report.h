#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tools/load/load.h"
#include "tools/report/distribution.h"

namespace tessera::tools {

// Latencies of some requests, in milliseconds.
struct LoadLatencies {
  std::string name;
  Distribution ttft;  // to the first piece of text
  Distribution tpot;  // per output token behind the first
  Distribution itl;   // between pieces of text
  Distribution e2e;
  // p99 of itl over its median; 0 without gaps.
  double jitter() const { return itl.median > 0 ? itl.p99 / itl.median : 0; }
};

struct LoadReport {
  int succeeded = 0;
  int failed = 0;
  std::string first_error;
  double seconds = 0;  // from the first request's begin to the last one's end
  int64_t prompt_tokens = 0, image_tokens = 0, cached_tokens = 0, ahead_tokens = 0;
  int64_t output_tokens = 0;
  LoadLatencies all;
  std::vector<LoadLatencies> by_tier;        // of the picture, or "text"
  std::vector<LoadLatencies> by_complexity;  // low, middle, high
  // Mean milliseconds of each stage of the receipts.
  std::vector<std::pair<std::string, double>> stages;
  std::optional<int64_t> server_peak_bytes;
};

LoadReport MakeLoadReport(const std::vector<LoadResult>& results);
void PrintLoadReport(const LoadReport& report, const LoadOptions& load, std::ostream& out);
std::string LoadReportJson(const LoadReport& report, const LoadOptions& load);

}  // namespace tessera::tools
