#include "services/vision/encoder/prepare_stage.h"

#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace tessera::vision {

using Place = EncodeJob::Place;

PrepareStage::PrepareStage(const PrepareOptions& options, PrepareSteps steps, PrepareDeps deps)
    : options_(options), steps_(std::move(steps)), deps_(std::move(deps)) {
  CHECK_GE(options.threads, 1);
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Loop(); });
}

PrepareStage::~PrepareStage() {
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
    ready_.SignalAll();
    decode_room_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void PrepareStage::Push(JobPtr job) {
  base::MutexLock lock(mutex_);
  queue_.push_back(std::move(job));
  ready_.Signal();
}

bool PrepareStage::Remove(const JobPtr& job) {
  base::MutexLock lock(mutex_);
  decode_room_.SignalAll();
  return std::erase(queue_, job) > 0;
}

void PrepareStage::Loop() {
  while (true) {
    JobPtr job;
    {
      base::MutexLock lock(mutex_);
      while (queue_.empty() && !stop_) ready_.Wait(mutex_);
      if (stop_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    if (deps_.jobs.Move(*job, Place::kPreparing)) Prepare(job);
  }
}

void PrepareStage::Prepare(const JobPtr& job) {
  job->log.Mark(Stage::kQueue, deps_.clock.Now());
  if (Lookup(job)) return;
  const absl::Status status = DecodeAndPreprocess(*job);
  if (!deps_.jobs.Wanted(*job)) return;
  if (!status.ok()) return deps_.jobs.Finish(job, status, false);
  if (deps_.jobs.Move(*job, Place::kEncodeQueue)) deps_.next(job);
}

// True when the record came into being here since it was asked for.
bool PrepareStage::Lookup(const JobPtr& job) {
  auto record = deps_.store.Peek(job->task.key);
  job->log.Mark(Stage::kFetch, deps_.clock.Now());
  if (!record.ok() || !record->has_value()) return false;
  deps_.jobs.Finish(job, **std::move(record), true);
  return true;
}

// Any error where the job was dropped meanwhile.
absl::Status PrepareStage::DecodeAndPreprocess(EncodeJob& job) {
  const size_t bytes = job.task.decode_bytes;
  {
    base::MutexLock lock(mutex_);
    while (decode_bytes_ > 0 && decode_bytes_ + bytes > options_.max_decode_bytes && !stop_ &&
           deps_.jobs.Wanted(job)) {
      decode_room_.Wait(mutex_);
    }
    if (stop_ || !deps_.jobs.Wanted(job)) return absl::CancelledError();
    decode_bytes_ += bytes;
  }
  job.log.Mark(Stage::kQueue, deps_.clock.Now());
  const absl::Status status = DecodeAndPreprocessWithRoom(job);
  base::MutexLock lock(mutex_);
  decode_bytes_ -= bytes;
  decode_room_.SignalAll();
  return status;
}

absl::Status PrepareStage::DecodeAndPreprocessWithRoom(EncodeJob& job) {
  ASSIGN_OR_RETURN(const RgbImage image,
                   steps_.decode(job.task.bytes, [&] { return deps_.jobs.Wanted(job); }));
  std::string().swap(job.task.bytes);
  job.log.Mark(Stage::kImageDecode, deps_.clock.Now());
  if (!deps_.jobs.Wanted(job)) return absl::CancelledError();
  ASSIGN_OR_RETURN(job.prepared, steps_.preprocess(image));
  job.log.Mark(Stage::kPreprocess, deps_.clock.Now());
  return absl::OkStatus();
}

}  // namespace tessera::vision
