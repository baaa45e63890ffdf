#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "tools/client/dial.h"
#include "tools/load/load.h"

namespace tessera::tools {

struct ServeBenchOptions {
  DialOptions dial;       // a running server
  std::string questions;  // a question set, as ReadQuestions takes it
  LoadOptions load;
  int32_t warmup = 4;          // sessions before, not counted
  int32_t server_process = 0;  // whose peak memory is told; 0: found by the port, on this machine
  bool json = false;
};

// Asks a running server questions about pictures and prints what users of `vllm bench serve` know:
// requests, duration, tokens, throughput; times to first token, per output token, between pieces
// and end to end. Then the same by cache tier of the picture and by its complexity (encoded bits
// per pixel, in three equal groups), the stages of the receipts, jitter and peak memory. A progress
// bar goes to `progress`. UNAVAILABLE when no request succeeded.
absl::Status RunServeBench(const ServeBenchOptions& options, std::ostream& out,
                           std::ostream& progress);

}  // namespace tessera::tools
