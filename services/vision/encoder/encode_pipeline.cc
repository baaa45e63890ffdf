#include "services/vision/encoder/encode_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/vision/encoder/encode_job.h"

namespace tessera::vision {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(1);

absl::Status CancelledError() {
  return base::Error(absl::StatusCode::kCancelled, "CANCELLED", "nobody waits for the picture");
}

absl::Status ShutDownError() {
  return base::WithRetry(base::Error(absl::StatusCode::kUnavailable, "DRAINING",
                                     "this vision service takes no new pictures"),
                         kRetry);
}

}  // namespace

EncodePipeline::EncodePipeline(const PipelineOptions& options, PrepareSteps steps,
                               const PipelineParts& parts)
    : options_(options),
      steps_(std::move(steps)),
      tower_(parts.tower),
      store_(parts.store),
      clock_(parts.clock),
      metrics_(parts.metrics),
      rooms_({options.max_pending_bytes, options.max_pending_images, options.tenant_share}) {
  CHECK_GE(options.prepare_threads, 1);
  CHECK_GE(options.max_batch_images, 1);
  for (int i = 0; i < options.prepare_threads; ++i) {
    threads_.emplace_back([this] { PrepareLoop(); });
  }
  threads_.emplace_back([this] { EncodeLoop(); });
}

EncodePipeline::~EncodePipeline() {
  std::vector<Waiter> left;
  {
    base::MutexLock lock(mutex_);
    draining_ = stop_ = true;
    for (auto& [key, job] : jobs_) {
      std::move(job->waiters.begin(), job->waiters.end(), std::back_inserter(left));
      job->waiters.clear();
    }
    waiters_.clear();
    to_prepare_.clear();
    to_encode_.clear();
    prepare_ready_.SignalAll();
    encode_ready_.SignalAll();
    decode_room_.SignalAll();
  }
  for (Waiter& waiter : left) waiter.done(ShutDownError());
  for (std::thread& thread : threads_) thread.join();
}

EncodePipeline::WaiterId EncodePipeline::NewWaiter() {
  base::MutexLock lock(mutex_);
  return ++last_waiter_;
}

absl::StatusOr<std::unique_ptr<PendingPictures::Room>> EncodePipeline::Reserve(
    size_t bytes, absl::string_view tenant) {
  absl::Duration retry;
  {
    base::MutexLock lock(mutex_);
    if (draining_) return ShutDownError();
    retry = TimeForAll();
  }
  return rooms_.Reserve(bytes, tenant, retry);
}

absl::Duration EncodePipeline::TimeForAll() const {
  return rate_.TimeFor(static_cast<int64_t>(pending_images_) + 1, clock_.Now());
}

void EncodePipeline::ObserveDrain() {
  rate_.Observe(ended_, !to_prepare_.empty() || !to_encode_.empty(), clock_.Now());
}

absl::Status EncodePipeline::Admit() {
  if (pending_images_ < options_.max_pending_images) return absl::OkStatus();
  return base::WithRetry(
      base::Error(
          absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
          absl::StrCat(pending_images_, " pictures wait for the encoder already; try again")),
      TimeForAll());
}

absl::Status EncodePipeline::Submit(WaiterId waiter, EncodeTask task) {
  CHECK(task.room != nullptr);
  const absl::Time now = clock_.Now();
  base::MutexLock lock(mutex_);
  if (draining_) return ShutDownError();
  auto found = jobs_.find(task.key);
  if (found == jobs_.end()) {
    RETURN_IF_ERROR(Admit());
    auto done = std::move(task.done);
    auto job = std::make_shared<Job>(std::move(task), now);
    pending_images_ += 1;
    found = jobs_.emplace(job->task.key, job).first;
    to_prepare_.push_back(job);
    ObserveDrain();
    prepare_ready_.Signal();
    task.done = std::move(done);
  }
  found->second->waiters.push_back({waiter, now, std::move(task.done)});
  waiters_.emplace(waiter, found->second);
  return absl::OkStatus();
}

void EncodePipeline::Release(Job& job) {
  if (!job.pending) return;
  job.pending = false;
  pending_images_ -= 1;
  ++ended_;
  ObserveDrain();
  job.task.room.reset();
  idle_.SignalAll();
}

void EncodePipeline::Cancel(WaiterId waiter) {
  std::function<void(absl::StatusOr<Encoded>)> done;
  {
    base::MutexLock lock(mutex_);
    const auto found = waiters_.find(waiter);
    if (found == waiters_.end()) return;
    const JobPtr job = found->second;
    waiters_.erase(found);
    const auto it = std::find_if(job->waiters.begin(), job->waiters.end(),
                                 [waiter](const Waiter& w) { return w.id == waiter; });
    done = std::move(it->done);
    job->waiters.erase(it);
    if (job->waiters.empty() && !job->encoding) {
      job->dropped = true;
      decode_room_.SignalAll();
      jobs_.erase(job->task.key);
      const size_t queued = to_prepare_.size() + to_encode_.size();
      std::erase(to_prepare_, job);
      std::erase(to_encode_, job);
      // Otherwise a thread has it, and gives its place back when it sees the mark.
      if (to_prepare_.size() + to_encode_.size() < queued) Release(*job);
    }
  }
  done(CancelledError());
}

bool EncodePipeline::Dropped(const JobPtr& job) {
  base::MutexLock lock(mutex_);
  if (job->dropped) Release(*job);
  return job->dropped || stop_;
}

void EncodePipeline::Finish(const JobPtr& job, absl::StatusOr<store::RecordPtr> record,
                            bool existed) {
  std::vector<Waiter> waiters;
  {
    base::MutexLock lock(mutex_);
    const auto found = jobs_.find(job->task.key);
    if (found != jobs_.end() && found->second == job) jobs_.erase(found);
    waiters.swap(job->waiters);
    for (const Waiter& waiter : waiters) waiters_.erase(waiter.id);
    Release(*job);
    ++finishing_;
  }
  for (Waiter& waiter : waiters) {
    if (record.ok()) {
      waiter.done(Encoded{*record, existed, job->log.Since(waiter.joined),
                          job->log.SpansSince(waiter.joined)});
    } else {
      waiter.done(record.status());
    }
  }
  base::MutexLock lock(mutex_);
  --finishing_;
  idle_.SignalAll();
}

bool EncodePipeline::Drain(absl::Time deadline) {
  base::MutexLock lock(mutex_);
  draining_ = true;
  while (pending_images_ > 0 || finishing_ > 0) {
    if (clock_.Now() >= deadline) return false;
    clock_.WaitUntil(idle_, mutex_, deadline);
  }
  return true;
}

PipelineStats EncodePipeline::stats() const {
  base::MutexLock lock(mutex_);
  return {static_cast<int64_t>(pending_images_), encoding_ || !to_encode_.empty(), batches_,
          draining_, health_};
}

}  // namespace tessera::vision
