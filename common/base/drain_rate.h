#pragma once

#include <cstdint>
#include <deque>

#include "absl/time/time.h"

namespace tessera::base {

// How many requests end in a second while others wait: only then is it the rate at which a queue
// drains, and not that at which work happens to come. Pure; one thread, or guarded.
class DrainRate {
 public:
  // `ended`: requests, since whoever counts them began; a smaller number than before begins anew.
  // `waiting`: something waits now.
  void Observe(uint64_t ended, bool waiting, absl::Time now);
  // Requests per second over the last 5 s of waiting, or, for a minute, over the time of waiting
  // before. 0: not known.
  double PerSecond(absl::Time now) const;
  // Until `requests` have ended at this rate, within 100 ms and a minute; 1 s when not known.
  absl::Duration TimeFor(int64_t requests, absl::Time now) const;

 private:
  struct Sample {
    absl::Time at;
    uint64_t ended = 0;
  };
  std::deque<Sample> samples_;  // of the waiting that goes on
  double last_ = 0;             // the rate when it was last known
  absl::Time known_at_ = absl::InfinitePast();
};

}  // namespace tessera::base
