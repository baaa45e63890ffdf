#include "services/gateway/admission/pace.h"

#include <algorithm>
#include <vector>

namespace tessera::gateway {
namespace {

constexpr size_t kMost = 64;
constexpr size_t kLeastAnswers = 8;
constexpr absl::Duration kAge = absl::Seconds(30);
// Fewer tokens take as long as so many: a step costs something whatever it holds.
constexpr uint32_t kStepTokens = 16;

// The value below which a share of them lies.
double Quantile(std::vector<double>& values, double share) {
  const auto place =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), place, values.end());
  return *place;
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
  if (prefill.size() < kLeastAnswers || per_token.size() < kLeastAnswers) return std::nullopt;
  const uint32_t tokens = std::max(prompt_tokens, kStepTokens);
  return Forecast{absl::Seconds(Quantile(prefill, 0.5) * tokens),
                  absl::Seconds(Quantile(prefill, 0.1) * tokens),
                  absl::Seconds(Quantile(per_token, 0.5))};
}

}  // namespace tessera::gateway
