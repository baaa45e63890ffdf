#include "services/gateway/http/deadline.h"

namespace tessera::gateway::http {

void Deadline::SetAfter(absl::Duration timeout, std::shared_ptr<void> owner) {
  end_ = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(timeout);
  if (!waiting_ || end_ < timer_.expiry()) Wait(std::move(owner));
}

void Deadline::Extend(absl::Duration more) {
  if (end_ != SteadyTime::max()) end_ += absl::ToChronoMicroseconds(more);
}

void Deadline::Cancel() {
  cancelled_ = true;
  timer_.cancel();
}

// One wait at a time, often for an earlier deadline than today's: most never come to pass.
void Deadline::Wait(std::shared_ptr<void> owner) {
  waiting_ = true;
  timer_.expires_at(end_);
  timer_.async_wait([this, owner = std::move(owner)](boost::system::error_code error) mutable {
    if (!error) OnTimer(std::move(owner));
  });
}

void Deadline::OnTimer(std::shared_ptr<void> owner) {
  waiting_ = false;
  if (cancelled_ || end_ == SteadyTime::max()) return;
  if (std::chrono::steady_clock::now() < end_) return Wait(std::move(owner));
  passed_();
}

}  // namespace tessera::gateway::http
