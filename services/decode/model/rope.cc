#include "services/decode/model/rope.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace tessera::decode {
namespace {

// 1 / base^(2c / head_dim), each operation rounded to f32.
void Geometric(float base, int head_dim, absl::Span<float> out) {
  for (size_t c = 0; c < out.size(); ++c) {
    const float exponent = static_cast<float>(2 * c) / static_cast<float>(head_dim);
    const float power =
        static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    out[c] = 1.0f / power;
  }
}

// NTK-aware scaling of the base by the current length.
float DynamicBase(const RopeConfig& config, int head_dim, int64_t length) {
  const float factor = static_cast<float>(config.factor);
  const float trained = static_cast<float>(config.max_position_embeddings);
  const float longest = static_cast<float>(std::max(length, config.max_position_embeddings));
  const float stretch = factor * longest / trained - static_cast<float>(config.factor - 1);
  const double exponent = head_dim / static_cast<double>(head_dim - 2);
  return static_cast<float>(config.theta) * static_cast<float>(std::pow(stretch, exponent));
}

// Long waves are divided by the factor, short ones kept, those between interpolated.
float Llama3(const RopeConfig& config, float frequency) {
  const float factor = static_cast<float>(config.factor);
  const float low = static_cast<float>(config.low_freq_factor);
  const float high = static_cast<float>(config.high_freq_factor);
  const float trained = static_cast<float>(config.original_max_position_embeddings);
  const float wave = static_cast<float>(2 * M_PI) / frequency;
  if (wave < trained / high) return frequency;
  if (wave > trained / low) return frequency / factor;
  const float smooth = (trained / wave - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

Rope::Rope(const RopeConfig& config, int head_dim) : config_(config), head_dim_(head_dim) {
  CHECK(head_dim > 0 && head_dim % 2 == 0);
  frequencies_.resize(head_dim / 2);
  Frequencies(0, absl::MakeSpan(frequencies_));
}

void Rope::Frequencies(int64_t length, absl::Span<float> out) const {
  CHECK_EQ(out.size(), static_cast<size_t>(head_dim_ / 2));
  const float base = config_.kind == RopeKind::kDynamic ? DynamicBase(config_, head_dim_, length)
                                                        : static_cast<float>(config_.theta);
  Geometric(base, head_dim_, out);
  for (float& frequency : out) {
    if (config_.kind == RopeKind::kLinear) frequency /= static_cast<float>(config_.factor);
    if (config_.kind == RopeKind::kLlama3) frequency = Llama3(config_, frequency);
  }
}

void Rope::Plan(absl::Span<const int32_t> rotary_length) {
  if (config_.kind != RopeKind::kDynamic) return;
  const size_t half = static_cast<size_t>(head_dim_ / 2);
  frequencies_.resize(half);  // set 0: nothing stretched
  frequency_set_.clear();
  int64_t last_length = config_.max_position_embeddings;
  int32_t last_set = 0;
  for (int32_t token_length : rotary_length) {
    const int64_t length = std::max<int64_t>(token_length, config_.max_position_embeddings);
    if (length == config_.max_position_embeddings) {
      frequency_set_.push_back(0);
      continue;
    }
    if (length != last_length) {
      last_length = length;
      last_set = static_cast<int32_t>(frequencies_.size() / half);
      frequencies_.resize(frequencies_.size() + half);
      Frequencies(length, absl::MakeSpan(frequencies_).last(half));
    }
    frequency_set_.push_back(last_set);
  }
}

}  // namespace tessera::decode
