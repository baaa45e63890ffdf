#include "services/gateway/inflight_limit.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::gateway {

absl::Status InflightLimit::Enter() {
  base::MutexLock lock(mutex_);
  if (draining_) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kUnavailable, "DRAINING", "this server is shutting down"),
        absl::Seconds(1));
  }
  if (inflight_ >= limit_) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    absl::StrCat(limit_,
                                 " requests are under way, which is the limit; try again "
                                 "in a moment")),
        absl::Milliseconds(500));
  }
  ++inflight_;
  return absl::OkStatus();
}

int InflightLimit::inflight() {
  base::MutexLock lock(mutex_);
  return inflight_;
}

void InflightLimit::Leave() {
  base::MutexLock lock(mutex_);
  --inflight_;
  left_.SignalAll();
}

void InflightLimit::Drain(base::Clock& clock, absl::Time deadline) {
  base::MutexLock lock(mutex_);
  draining_ = true;
  while (inflight_ > 0 && clock.Now() < deadline) clock.WaitUntil(left_, mutex_, deadline);
}

}  // namespace tessera::gateway
