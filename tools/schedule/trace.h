#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::tools {

struct TraceTurn {
  int32_t question_tokens = 20;
  int32_t answer_tokens = 20;
  double think_seconds = 0;  // from the end of the turn before; of the first turn: not used
};

// One user's conversation about one picture.
struct TraceSession {
  double arrival_seconds = 0;  // of its first turn
  std::string tenant;
  std::string picture;         // equal names are equal pictures; empty: none
  int32_t rows = 0;            // of the picture
  int32_t prefix_tokens = 16;  // of the template, in front of the picture; equal for everybody
  std::vector<TraceTurn> turns;
};

// One JSON object a line: {"arrival_seconds": 0.5, "tenant": "a", "picture": "p7", "rows": 576,
// "prefix_tokens": 16, "turns": [{"question_tokens": 20, "answer_tokens": 20, "think_seconds":
// 2}]}. INVALID_ARGUMENT names the line and the key.
absl::StatusOr<std::vector<TraceSession>> ReadTrace(const std::string& path);

enum class Arrivals {
  kTogether,  // all at 0
  kPoisson,   // `rate` sessions a second
  kBursts,    // `burst` together, `rate` sessions a second in the mean
};

struct TraceOptions {
  Arrivals arrivals = Arrivals::kTogether;
  int32_t sessions = 8;
  double rate = 1;
  int32_t burst = 8;
  int32_t pictures = 0;  // different ones; 0: one for each session
  int32_t tenants = 1;
  int32_t rows = 576;
  int32_t turns = 4;
  int32_t question_tokens = 20;
  int32_t answer_tokens = 20;
  double think_seconds = 0;
  uint64_t seed = 1;
};
// Equal options make equal traces. REQUIRES: counts at least 1, rate above 0.
std::vector<TraceSession> MakeTrace(const TraceOptions& options);

}  // namespace tessera::tools
