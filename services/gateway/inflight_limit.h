#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace tessera::gateway {

// Counts requests under way against a limit. Any thread.
class InflightLimit {
 public:
  explicit InflightLimit(int limit) : limit_(limit) {}

  // OK takes a place that Leave gives back. RESOURCE_EXHAUSTED with RetryInfo when all are taken,
  // UNAVAILABLE with RetryInfo while draining.
  absl::Status Enter();
  void Leave();
  int inflight();
  // Refuses from now on, then waits until all have left or `deadline` has passed.
  void Drain(base::Clock& clock, absl::Time deadline);

 private:
  const int limit_;
  base::Mutex mutex_;
  base::CondVar left_;
  int inflight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tessera::gateway
