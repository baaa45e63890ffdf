#include "services/vision/encoder/encode_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/store/rows.h"

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

// Passed from queue to queue; the thread that took it owns what is not marked.
struct EncodePipeline::Job {
  Job(EncodeTask&& task, absl::Time now) : task(std::move(task)), log(now) {}

  EncodeTask task;  // without `done`, which is a waiter's
  StageLog log;
  Prepared prepared;
  // Under mutex_:
  std::vector<Waiter> waiters;
  size_t charged_bytes = 0;
  bool pending = true;    // counted in pending_*
  bool encoding = false;  // the tower has it
  bool dropped = false;   // nobody waits: stop at the next chance
};

EncodePipeline::EncodePipeline(const PipelineOptions& options, PrepareSteps steps,
                               VisionTower& tower, store::EmbeddingStore& store, base::Clock& clock)
    : options_(options), steps_(std::move(steps)), tower_(tower), store_(store), clock_(clock) {
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

absl::Status EncodePipeline::Admit(size_t bytes) {
  const bool full = pending_images_ >= options_.max_pending_images ||
                    (pending_images_ > 0 && pending_bytes_ + bytes > options_.max_pending_bytes);
  if (!full) return absl::OkStatus();
  return base::WithRetry(
      base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                  absl::StrCat(pending_images_, " pictures (", pending_bytes_,
                               " bytes) wait for the encoder already; try again")),
      kRetry);
}

absl::Status EncodePipeline::Submit(WaiterId waiter, EncodeTask task) {
  const absl::Time now = clock_.Now();
  base::MutexLock lock(mutex_);
  if (draining_) return ShutDownError();
  auto found = jobs_.find(task.key);
  if (found == jobs_.end()) {
    RETURN_IF_ERROR(Admit(task.bytes.size()));
    auto done = std::move(task.done);
    auto job = std::make_shared<Job>(std::move(task), now);
    job->charged_bytes = job->task.bytes.size();
    pending_images_ += 1;
    pending_bytes_ += job->charged_bytes;
    found = jobs_.emplace(job->task.key, job).first;
    to_prepare_.push_back(job);
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
  pending_bytes_ -= job.charged_bytes;
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

void EncodePipeline::PrepareLoop() {
  while (true) {
    JobPtr job;
    {
      base::MutexLock lock(mutex_);
      while (to_prepare_.empty() && !stop_) prepare_ready_.Wait(mutex_);
      if (stop_) return;
      job = std::move(to_prepare_.front());
      to_prepare_.pop_front();
    }
    Prepare(job);
  }
}

void EncodePipeline::Prepare(const JobPtr& job) {
  job->log.Mark(Stage::kQueue, clock_.Now());
  if (Lookup(job)) return;
  const absl::Status status = DecodeAndPreprocess(*job);
  if (Dropped(job)) return;
  if (!status.ok()) return Finish(job, status, false);
  base::MutexLock lock(mutex_);
  if (job->dropped || stop_) return Release(*job);
  to_encode_.push_back(job);
  encode_ready_.Signal();
}

// True when the record came into being since it was asked for.
bool EncodePipeline::Lookup(const JobPtr& job) {
  auto record = store_.Get(job->task.key);
  job->log.Mark(Stage::kFetch, clock_.Now());
  if (!record.ok() || !record->has_value()) return false;
  Finish(job, **std::move(record), true);
  return true;
}

absl::Status EncodePipeline::DecodeAndPreprocess(Job& job) {
  const size_t bytes = job.task.decode_bytes;
  {
    base::MutexLock lock(mutex_);
    while (decode_bytes_ > 0 && decode_bytes_ + bytes > options_.max_decode_bytes && !stop_) {
      decode_room_.Wait(mutex_);
    }
    decode_bytes_ += bytes;
  }
  job.log.Mark(Stage::kQueue, clock_.Now());
  const auto work = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const RgbImage image, steps_.decode(job.task.bytes));
    std::string().swap(job.task.bytes);
    job.log.Mark(Stage::kImageDecode, clock_.Now());
    ASSIGN_OR_RETURN(job.prepared, steps_.preprocess(image));
    job.log.Mark(Stage::kPreprocess, clock_.Now());
    return absl::OkStatus();
  };
  const absl::Status status = work();
  base::MutexLock lock(mutex_);
  decode_bytes_ -= bytes;
  decode_room_.SignalAll();
  return status;
}

void EncodePipeline::EncodeLoop() {
  while (true) {
    const std::vector<JobPtr> batch = NextBatch();
    if (batch.empty()) return;
    EncodeBatch(batch);
  }
}

// Waits for a job and takes with it those of its shape; none when the pipeline stops.
std::vector<EncodePipeline::JobPtr> EncodePipeline::NextBatch() {
  base::MutexLock lock(mutex_);
  while (to_encode_.empty() && !stop_) encode_ready_.Wait(mutex_);
  std::vector<JobPtr> batch;
  if (stop_) return batch;
  const size_t most = static_cast<size_t>(options_.max_batch_images);
  for (auto it = to_encode_.begin(); it != to_encode_.end() && batch.size() < most;) {
    const Prepared& first = batch.empty() ? (*it)->prepared : batch[0]->prepared;
    if ((*it)->prepared.height != first.height || (*it)->prepared.width != first.width) {
      ++it;
      continue;
    }
    (*it)->encoding = true;
    batch.push_back(std::move(*it));
    it = to_encode_.erase(it);
  }
  return batch;
}

void EncodePipeline::EncodeBatch(const std::vector<JobPtr>& batch) {
  std::vector<TensorView> pictures;
  for (const JobPtr& job : batch) {
    job->log.Mark(Stage::kQueue, clock_.Now());
    const Prepared& prepared = job->prepared;
    pictures.push_back({DType::kF32,
                        {3, prepared.height, prepared.width},
                        reinterpret_cast<const std::byte*>(prepared.pixel_values.data())});
  }
  auto rows = tower_.Encode(pictures);
  for (const JobPtr& job : batch) job->log.Mark(Stage::kEncode, clock_.Now());
  if (!rows.ok() && batch.size() > 1) {
    // One picture's trouble, or memory for so many at once: each gets its own answer.
    for (const JobPtr& job : batch) EncodeBatch({job});
    return;
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!rows.ok()) {
      Finish(batch[i], rows.status(), false);
      continue;
    }
    batch[i]->log.Mark(Stage::kQueue, clock_.Now());
    Finish(batch[i], StoreRows(*batch[i], (*rows)[i]), false);
  }
}

absl::StatusOr<store::RecordPtr> EncodePipeline::StoreRows(Job& job, const Tensor& rows) {
  auto record = std::make_shared<store::EmbeddingRecord>();
  record->key = job.task.key;
  record->dtype = options_.record_dtype;
  record->rows = rows.shape()[0];
  record->width = rows.shape()[1];
  record->grid_height = job.task.grid_height;
  record->grid_width = job.task.grid_width;
  record->model_revision = options_.model_revision;
  record->preprocessing = options_.preprocessing;
  record->created = absl::FromUnixMicros(absl::ToUnixMicros(clock_.Now()));
  record->quality = std::move(job.prepared.scores);
  auto data = store::RowsFromF32(rows.f32(), record->rows, record->width, record->dtype);
  if (!data.ok()) {
    // The client did nothing wrong: weights or arithmetic did.
    return base::Error(absl::StatusCode::kInternal, "NONFINITE_ROWS", data.status().message());
  }
  record->data = *std::move(data);
  const StageTimes spent = job.log.Since(absl::InfinitePast());
  const absl::Status stored = store_.Put(
      record, spent[Stage::kImageDecode] + spent[Stage::kPreprocess] + spent[Stage::kEncode]);
  job.log.Mark(Stage::kStore, clock_.Now());
  if (!stored.ok()) {
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("embedding store: a record was not kept: ", stored.message()));
  }
  return store::RecordPtr(std::move(record));
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
      waiter.done(Encoded{*record, existed, job->log.Since(waiter.joined)});
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

}  // namespace tessera::vision
