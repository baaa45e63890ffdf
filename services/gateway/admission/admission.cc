#include "services/gateway/admission/admission.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::gateway {

absl::StatusOr<Admission::Place> Admission::Enter(const std::string& tenant) {
  const absl::Time now = clock_.Now();
  base::MutexLock lock(mutex_);
  if (draining_) {
    return base::WithRetry(base::Error(absl::StatusCode::kUnavailable, "DRAINING",
                                       "this server is shutting down; ask another"),
                           absl::Seconds(1));
  }
  const absl::Status entered = queue_.Enter(tenant, now);
  if (!entered.ok()) return entered;
  return Place(*this, tenant);
}

void Admission::Leave(const std::string& tenant) {
  const absl::Time now = clock_.Now();
  base::MutexLock lock(mutex_);
  queue_.Leave(tenant, now);
  if (queue_.places() == 0) departure_.SignalAll();
}

void Admission::Ask(Ticket ticket, AdmissionQueue::Request request,
                    std::function<void(const absl::Status&)> done) {
  const absl::Time now = clock_.Now();
  const absl::Time deadline = request.deadline;
  absl::Status answer;
  AdmissionQueue::Outcome outcome{};
  {
    base::MutexLock lock(mutex_);
    outcome = queue_.Ask(ticket, std::move(request), now, answer);
    if (outcome == AdmissionQueue::Outcome::kQueued) {
      Waiting& waiting = waiting_[ticket];
      waiting.done = std::move(done);
      waiting.expiry = timers_.At(deadline, [this, ticket] { Expire(ticket); });
    }
  }
  if (outcome == AdmissionQueue::Outcome::kQueued) return Pump();
  done(answer);
}

void Admission::Began(Ticket ticket) {
  base::MutexLock lock(mutex_);
  queue_.Began(ticket);
}

void Admission::Release(Ticket ticket) {
  const absl::Time now = clock_.Now();
  std::function<void(const absl::Status&)> done;  // goes without the lock
  {
    base::MutexLock lock(mutex_);
    if (!queue_.Release(ticket, now)) return;
    const auto waiting = waiting_.find(ticket);
    if (waiting != waiting_.end()) {
      timers_.Cancel(waiting->second.expiry);
      done = std::move(waiting->second.done);
      waiting_.erase(waiting);
    }
  }
  Pump();
}

void Admission::Expire(Ticket ticket) {
  std::function<void(const absl::Status&)> done;
  {
    base::MutexLock lock(mutex_);
    const auto waiting = waiting_.find(ticket);
    if (waiting == waiting_.end()) return;
    done = std::move(waiting->second.done);
    waiting_.erase(waiting);
    queue_.Release(ticket, clock_.Now());
  }
  done(absl::DeadlineExceededError("it waited for room until its deadline"));
  Pump();
}

void Admission::Pump() {
  {
    base::MutexLock lock(mutex_);
    if (std::exchange(pumping_, true)) return;  // whoever pumps looks again before he stops
  }
  while (true) {
    std::function<void(const absl::Status&)> done;
    {
      base::MutexLock lock(mutex_);
      const std::optional<Ticket> next = queue_.Next();
      if (!next) {
        pumping_ = false;
        return;
      }
      const auto waiting = waiting_.find(*next);
      timers_.Cancel(waiting->second.expiry);
      done = std::move(waiting->second.done);
      waiting_.erase(waiting);
    }
    done(absl::OkStatus());
  }
}

void Admission::SetTotal(int64_t tokens) {
  base::MutexLock lock(mutex_);
  queue_.SetTotal(tokens);
}

void Admission::Report(const DecodeRoom& room) {
  const absl::Time now = clock_.Now();
  {
    base::MutexLock lock(mutex_);
    queue_.Report(room, now);
  }
  Pump();
}

absl::Duration Admission::RetryAfter() {
  const absl::Time now = clock_.Now();
  base::MutexLock lock(mutex_);
  return queue_.RetryAfter(now);
}

void Admission::Drain(absl::Time deadline) {
  base::MutexLock lock(mutex_);
  draining_ = true;
  while (queue_.places() > 0 && clock_.Now() < deadline) {
    clock_.WaitUntil(departure_, mutex_, deadline);
  }
}

Admission::Stats Admission::stats() {
  base::MutexLock lock(mutex_);
  return {queue_.places(), queue_.queued(), queue_.tokens_admitted(), queue_.tokens_free()};
}

}  // namespace tessera::gateway
