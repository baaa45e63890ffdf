#include "services/vision/encoder/jobs_in_flight.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::vision {
namespace {

using Place = EncodeJob::Place;

constexpr absl::Duration kRetry = absl::Seconds(1);

absl::Status CancelledError() {
  return base::Error(absl::StatusCode::kCancelled, "CANCELLED", "nobody waits for the picture");
}

absl::Status ShutDownError() {
  return base::WithRetry(base::Error(absl::StatusCode::kUnavailable, "DRAINING",
                                     "this vision service takes no new pictures"),
                         kRetry);
}

bool IsQueue(Place place) { return place == Place::kPrepareQueue || place == Place::kEncodeQueue; }

}  // namespace

JobsInFlight::JobsInFlight(const PendingLimits& limits, base::Clock& clock)
    : max_images_(limits.max_images), clock_(clock), rooms_(limits) {}

WaiterId JobsInFlight::NewWaiter() {
  base::MutexLock lock(mutex_);
  return ++last_waiter_;
}

absl::StatusOr<std::unique_ptr<PendingPictures::Room>> JobsInFlight::Reserve(
    size_t bytes, absl::string_view tenant) {
  absl::Duration retry;
  {
    base::MutexLock lock(mutex_);
    if (draining_) return ShutDownError();
    retry = TimeForAll();
  }
  return rooms_.Reserve(bytes, tenant, retry);
}

absl::Duration JobsInFlight::TimeForAll() const {
  return rate_.TimeFor(static_cast<int64_t>(pending_) + 1, clock_.Now());
}

void JobsInFlight::ObserveDrain() { rate_.Observe(ended_, queued_ > 0, clock_.Now()); }

absl::Status JobsInFlight::Admit() {
  if (pending_ < max_images_) return absl::OkStatus();
  return base::WithRetry(
      base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                  absl::StrCat(pending_, " pictures wait for the encoder already; try again")),
      TimeForAll());
}

absl::StatusOr<JobPtr> JobsInFlight::Join(WaiterId waiter, EncodeTask task) {
  CHECK(task.room != nullptr);
  const absl::Time now = clock_.Now();
  base::MutexLock lock(mutex_);
  if (draining_) return ShutDownError();
  auto done = std::move(task.done);
  JobPtr created;
  auto found = jobs_.find(task.key);
  if (found == jobs_.end()) {
    RETURN_IF_ERROR(Admit());
    created = std::make_shared<EncodeJob>(std::move(task), now);
    found = jobs_.emplace(created->task.key, created).first;
    ++pending_;
    ++queued_;
    ObserveDrain();
  }
  found->second->waiters.push_back({waiter, now, std::move(done)});
  waiters_.emplace(waiter, found->second);
  return created;
}

JobPtr JobsInFlight::Leave(WaiterId waiter) {
  std::function<void(absl::StatusOr<Encoded>)> done;
  JobPtr dropped;
  {
    base::MutexLock lock(mutex_);
    const auto found = waiters_.find(waiter);
    if (found == waiters_.end()) return nullptr;
    const JobPtr job = found->second;
    waiters_.erase(found);
    const auto it = std::find_if(job->waiters.begin(), job->waiters.end(),
                                 [waiter](const EncodeJob::Waiter& w) { return w.id == waiter; });
    done = std::move(it->done);
    job->waiters.erase(it);
    if (job->waiters.empty() && job->place < Place::kEncoding) {
      job->dropped = true;
      jobs_.erase(job->task.key);
      dropped = job;
    }
  }
  done(CancelledError());
  return dropped;
}

void JobsInFlight::SetPlace(EncodeJob& job, Place place) {
  queued_ += IsQueue(place) ? 1 : 0;
  queued_ -= IsQueue(job.place) ? 1 : 0;
  job.place = place;
}

bool JobsInFlight::Move(EncodeJob& job, Place place) {
  base::MutexLock lock(mutex_);
  if (job.dropped) ReleaseLocked(job);
  if (job.dropped || stopped_) return false;
  SetPlace(job, place);
  return true;
}

bool JobsInFlight::Wanted(EncodeJob& job) {
  base::MutexLock lock(mutex_);
  if (job.dropped) ReleaseLocked(job);
  return !job.dropped && !stopped_;
}

void JobsInFlight::Release(EncodeJob& job) {
  base::MutexLock lock(mutex_);
  ReleaseLocked(job);
}

void JobsInFlight::ReleaseLocked(EncodeJob& job) {
  if (job.place == Place::kOver) return;
  SetPlace(job, Place::kOver);
  --pending_;
  ++ended_;
  ObserveDrain();
  job.task.room.reset();
  idle_.SignalAll();
}

void JobsInFlight::Finish(const JobPtr& job, const absl::StatusOr<store::RecordPtr>& record,
                          bool existed) {
  std::vector<EncodeJob::Waiter> waiters;
  {
    base::MutexLock lock(mutex_);
    const auto found = jobs_.find(job->task.key);
    if (found != jobs_.end() && found->second == job) jobs_.erase(found);
    waiters.swap(job->waiters);
    for (const EncodeJob::Waiter& waiter : waiters) waiters_.erase(waiter.id);
    ReleaseLocked(*job);
    ++answers_;
  }
  for (EncodeJob::Waiter& waiter : waiters) {
    if (record.ok()) {
      waiter.done(Encoded{*record, existed, job->log.Since(waiter.joined),
                          job->log.SpansSince(waiter.joined)});
    } else {
      waiter.done(record.status());
    }
  }
  base::MutexLock lock(mutex_);
  --answers_;
  idle_.SignalAll();
}

bool JobsInFlight::Drain(absl::Time deadline) {
  base::MutexLock lock(mutex_);
  draining_ = true;
  while (pending_ > 0 || answers_ > 0) {
    if (clock_.Now() >= deadline) return false;
    clock_.WaitUntil(idle_, mutex_, deadline);
  }
  return true;
}

void JobsInFlight::Stop() {
  std::vector<EncodeJob::Waiter> left;
  {
    base::MutexLock lock(mutex_);
    draining_ = stopped_ = true;
    for (auto& [key, job] : jobs_) {
      std::move(job->waiters.begin(), job->waiters.end(), std::back_inserter(left));
      job->waiters.clear();
    }
    waiters_.clear();
  }
  for (EncodeJob::Waiter& waiter : left) waiter.done(ShutDownError());
}

int64_t JobsInFlight::pending() const {
  base::MutexLock lock(mutex_);
  return static_cast<int64_t>(pending_);
}

bool JobsInFlight::draining() const {
  base::MutexLock lock(mutex_);
  return draining_;
}

}  // namespace tessera::vision
