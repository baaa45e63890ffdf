#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "tessera/v1/decode.pb.h"

namespace tessera::gateway {

// How fast decode works just now, by what it told of its last answers. Any thread.
class Pace {
 public:
  // An answer has ended at `now`.
  void Observe(const v1::DecodeEnd& end, absl::Time now);

  struct Forecast {
    absl::Duration first_token;  // from the begin of a prompt to its first token
    absl::Duration soonest;      // to the first token, as one in ten was
    absl::Duration per_token;    // of the answer behind it
  };
  // For a prompt of which `prompt_tokens` are to be computed. Medians of the last 64 answers that
  // are not older than 30 s; nothing when those are fewer than 8: a slow minute is forgotten even
  // if everything that came behind it was refused.
  std::optional<Forecast> Predict(uint32_t prompt_tokens, absl::Time now) const;

 private:
  struct Sample {
    absl::Time at;
    double prefill_per_token = 0;  // seconds
    double per_token = 0;          // seconds; 0: the answer had one token
  };

  mutable base::Mutex mutex_;
  std::deque<Sample> samples_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::gateway
