#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace tessera::decode {

// How tokens are chosen. The defaults are greedy.
struct SamplingOptions {
  float temperature = 0;  // 0: greedy; [0, 2]
  int64_t top_k = 0;      // 0: off; any larger number, beyond the vocabulary it keeps all
  float top_p = 1;        // (0, 1]
  float min_p = 0;        // [0, 1]
  uint64_t seed = 0;
  float repetition_penalty = 1;                // [0.1, 10]; of tokens that prompt or answer hold
  float frequency_penalty = 0;                 // [-2, 2]; per time that the answer holds the token
  float presence_penalty = 0;                  // [-2, 2]; once the answer holds the token
  std::vector<kernels::LogitBias> logit_bias;  // each id once, at most 1024; bias in [-100, 100]

  bool penalizes() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0;
  }
};

// A temperature below this one is greedy: dividing by it would not leave finite logits.
inline constexpr float kLeastTemperature = 1e-4f;

inline constexpr size_t kMostBiases = 1024;

// INVALID_ARGUMENT naming the field (options.temperature, ...), its value and what is allowed. NaN
// and infinity are never allowed.
absl::Status Validate(const SamplingOptions& options);
// INVALID_ARGUMENT when a biased token is not below `vocabulary`.
absl::Status CheckVocabulary(const SamplingOptions& options, int32_t vocabulary);

}  // namespace tessera::decode
