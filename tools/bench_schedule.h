#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "tools/schedule/trace.h"

namespace tessera::tools {

struct ScheduleBenchOptions {
  std::string profile;  // a StepTime file
  std::string trace;    // a file of sessions; empty: made from `make`
  TraceOptions make;
  int32_t max_batch_tokens = 512;
  int32_t max_sequences = 16;
  int32_t block_size = 16;
  int32_t context_tokens = 4096;
  size_t kv_cache_bytes = 8ull << 30;
  bool prefix_cache = true;
  bool json = false;
};

// Prints what users would see were the decode service's scheduler to run on the profile's device:
// times to first token, between tokens, throughput, cache hits, preemptions; by turn. BAD_OPTION,
// BAD_PROFILE or BAD_TRACE says what is wrong where.
absl::Status RunScheduleBench(const ScheduleBenchOptions& options, std::ostream& out);

}  // namespace tessera::tools
