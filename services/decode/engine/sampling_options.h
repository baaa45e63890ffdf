#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace tessera::decode {

// How tokens are chosen. The defaults are greedy.
struct SamplingOptions {
  float temperature = 0;  // 0: greedy; [0, 2]
  int64_t top_k = 0;      // 0: off; any larger number, beyond the vocabulary it keeps all
  float top_p = 1;        // (0, 1]
  float min_p = 0;        // [0, 1]
  uint64_t seed = 0;
};

// A temperature below this one is greedy: dividing by it would not leave finite logits.
inline constexpr float kLeastTemperature = 1e-4f;

// INVALID_ARGUMENT naming the field (options.temperature, ...), its value and what is allowed. NaN
// and infinity are never allowed.
absl::Status Validate(const SamplingOptions& options);

}  // namespace tessera::decode
