#include "services/gateway/pace.h"

#include <algorithm>
#include <vector>

namespace tessera::gateway {
namespace {

constexpr size_t kMost = 64;
constexpr size_t kLeast = 8;
constexpr absl::Duration kAge = absl::Seconds(30);
// Fewer tokens take as long as so many: a step costs something whatever it holds.
constexpr uint32_t kStepTokens = 16;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void Pace::Observe(const v1::DecodeEnd& end, absl::Time now) {
  const v1::Usage& usage = end.usage();
  if (usage.output_tokens() == 0 || end.stages().prefill_seconds() <= 0) return;
  const uint32_t computed =
      usage.prompt_tokens() - std::min(usage.prompt_tokens(), usage.cached_tokens());
  Sample sample{.at = now};
  sample.prefill_per_token = end.stages().prefill_seconds() / std::max(computed, kStepTokens);
  if (usage.output_tokens() > 1) {
    sample.per_token = end.stages().generation_seconds() / (usage.output_tokens() - 1);
  }
  base::MutexLock lock(mutex_);
  samples_.push_back(sample);
  if (samples_.size() > kMost) samples_.pop_front();
}

std::optional<Pace::Forecast> Pace::Predict(uint32_t prompt_tokens, absl::Time now) const {
  std::vector<double> prefill, per_token;
  {
    base::MutexLock lock(mutex_);
    for (const Sample& sample : samples_) {
      if (now - sample.at > kAge) continue;
      prefill.push_back(sample.prefill_per_token);
      if (sample.per_token > 0) per_token.push_back(sample.per_token);
    }
  }
  if (prefill.size() < kLeast || per_token.size() < kLeast) return std::nullopt;
  return Forecast{absl::Seconds(Median(std::move(prefill)) * std::max(prompt_tokens, kStepTokens)),
                  absl::Seconds(Median(std::move(per_token)))};
}

}  // namespace tessera::gateway
