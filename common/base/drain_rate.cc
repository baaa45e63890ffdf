#include "common/base/drain_rate.h"

#include <algorithm>

namespace tessera::base {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(5);
constexpr absl::Duration kSpacing = absl::Milliseconds(100);    // of the samples that are kept
constexpr absl::Duration kLeastSpan = absl::Milliseconds(500);  // less tells nothing
constexpr absl::Duration kRemembered = absl::Minutes(1);
constexpr absl::Duration kShortest = absl::Milliseconds(100);
constexpr absl::Duration kLongest = absl::Minutes(1);
constexpr absl::Duration kUnknown = absl::Seconds(1);

}  // namespace

void DrainRate::Observe(uint64_t ended, bool waiting, absl::Time now) {
  if (!samples_.empty() && ended < samples_.back().ended) samples_.clear();
  if (!waiting) {
    samples_.clear();
    return;
  }
  if (samples_.size() > 1 && now - samples_[samples_.size() - 2].at < kSpacing) {
    samples_.back() = {now, ended};
  } else {
    samples_.push_back({now, ended});
  }
  while (samples_.size() > 2 && now - samples_.front().at > kWindow) samples_.pop_front();
  const absl::Duration span = now - samples_.front().at;
  if (span < kLeastSpan || ended == samples_.front().ended) return;
  last_ = static_cast<double>(ended - samples_.front().ended) / absl::ToDoubleSeconds(span);
  known_at_ = now;
}

double DrainRate::PerSecond(absl::Time now) const {
  return now - known_at_ <= kRemembered ? last_ : 0;
}

absl::Duration DrainRate::TimeFor(int64_t requests, absl::Time now) const {
  const double rate = PerSecond(now);
  if (rate <= 0) return kUnknown;
  return std::clamp(absl::Seconds(static_cast<double>(requests) / rate), kShortest, kLongest);
}

}  // namespace tessera::base
