#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::decode {

// How rotary frequencies are stretched beyond the trained length (Hugging Face `rope_type`).
enum class RopeKind { kDefault, kLinear, kDynamic, kLlama3 };

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;  // linear, dynamic, llama3
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 0;
  // dynamic: the length up to which nothing is stretched
  int64_t max_position_embeddings = 0;
};

// Inverse frequencies of a step, computed in f32 as Hugging Face does; cos and sin are not scaled.
// Dynamic scaling (NTK) gives each token the frequencies of its own `rotary_length`; the other
// kinds use one set for all. Owned by the engine thread; a warm Plan allocates nothing.
class Rope {
 public:
  // REQUIRES: head_dim is even and positive (for dynamic scaling above 2); the config is valid.
  Rope(const RopeConfig& config, int head_dim);

  // Prepares the sets for tokens of these lengths ([tokens]; read by dynamic scaling only).
  void Plan(absl::Span<const int32_t> rotary_length);

  // Of the last Plan: [sets, head_dim / 2], and [tokens] which set each uses (empty: set 0).
  absl::Span<const float> inverse_frequency() const { return frequencies_; }
  absl::Span<const int32_t> frequency_set() const { return frequency_set_; }

  // The frequencies for one length: [head_dim / 2] into `out`.
  void Frequencies(int64_t length, absl::Span<float> out) const;

 private:
  const RopeConfig config_;
  const int head_dim_;
  std::vector<float> frequencies_;
  std::vector<int32_t> frequency_set_;
};

}  // namespace tessera::decode
