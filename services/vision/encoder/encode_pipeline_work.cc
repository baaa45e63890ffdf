#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/store/rows.h"
#include "services/vision/encoder/encode_job.h"
#include "services/vision/encoder/encode_pipeline.h"

// What the threads of the pipeline do with a job; waiters and bounds are in encode_pipeline.cc.
namespace tessera::vision {

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
  const absl::Status status = DecodeAndPreprocess(job);
  if (Dropped(job)) return;
  if (!status.ok()) return Finish(job, status, false);
  base::MutexLock lock(mutex_);
  if (job->dropped || stop_) return Release(*job);
  to_encode_.push_back(job);
  encode_ready_.Signal();
}

// True when the record came into being here since it was asked for.
bool EncodePipeline::Lookup(const JobPtr& job) {
  auto record = store_.Peek(job->task.key);
  job->log.Mark(Stage::kFetch, clock_.Now());
  if (!record.ok() || !record->has_value()) return false;
  Finish(job, **std::move(record), true);
  return true;
}

// Any error where the job was dropped meanwhile.
absl::Status EncodePipeline::DecodeAndPreprocess(const JobPtr& job) {
  const size_t bytes = job->task.decode_bytes;
  {
    base::MutexLock lock(mutex_);
    while (decode_bytes_ > 0 && decode_bytes_ + bytes > options_.max_decode_bytes &&
           !job->dropped && !stop_) {
      decode_room_.Wait(mutex_);
    }
    if (job->dropped || stop_) return absl::CancelledError();
    decode_bytes_ += bytes;
  }
  job->log.Mark(Stage::kQueue, clock_.Now());
  const auto work = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const RgbImage image, steps_.decode(job->task.bytes));
    std::string().swap(job->task.bytes);
    job->log.Mark(Stage::kImageDecode, clock_.Now());
    if (Dropped(job)) return absl::CancelledError();
    ASSIGN_OR_RETURN(job->prepared, steps_.preprocess(image));
    job->log.Mark(Stage::kPreprocess, clock_.Now());
    return absl::OkStatus();
  };
  const absl::Status status = work();
  base::MutexLock lock(mutex_);
  decode_bytes_ -= bytes;
  decode_room_.SignalAll();
  return status;
}

void EncodePipeline::EncodeLoop() {
  while (const std::optional<std::vector<JobPtr>> batch = NextBatch()) {
    if (batch->empty()) {
      TryDevice();
    } else {
      EncodeBatch(*batch);
    }
  }
}

// Waits for a job and takes with it those of its shape. An empty one when it is time to try the
// device, none when the pipeline stops.
std::optional<std::vector<EncodePipeline::JobPtr>> EncodePipeline::NextBatch() {
  base::MutexLock lock(mutex_);
  encoding_ = false;
  while (to_encode_.empty() && !stop_) {
    if (health_.ok()) {
      encode_ready_.Wait(mutex_);
    } else if (clock_.Now() < next_try_) {
      clock_.WaitUntil(encode_ready_, mutex_, next_try_);
    } else {
      break;
    }
  }
  if (stop_) return std::nullopt;
  encoding_ = true;
  std::vector<JobPtr> batch;
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

void EncodePipeline::TryDevice() {
  const std::vector<float> empty(3ull * last_height_ * last_width_);
  const auto rows = tower_.Encode({{DType::kF32,
                                    {3, last_height_, last_width_},
                                    reinterpret_cast<const std::byte*>(empty.data())}});
  NoteDevice(rows.status());
  base::MutexLock lock(mutex_);
  batches_ += 1;
}

// A picture's trouble does not come again with the next one.
void EncodePipeline::NoteDevice(const absl::Status& status) {
  constexpr int kMost = 3;
  base::MutexLock lock(mutex_);
  next_try_ = clock_.Now() + options_.device_retry;
  if (status.ok()) {
    device_failures_ = 0;
    if (!health_.ok()) base::Log(base::LogLevel::kInfo, "the device works again");
    health_ = status;
  } else if (absl::IsInternal(status) && ++device_failures_ >= kMost) {
    if (health_.ok()) {
      base::Log(base::LogLevel::kError, absl::StrCat("the device failed: ", status.ToString()));
    }
    health_ = base::WithReason(status, "DEVICE_FAILED");
  }
}

void EncodePipeline::EncodeBatch(const std::vector<JobPtr>& batch) {
  std::vector<TensorView> pictures;
  for (const JobPtr& job : batch) {
    job->log.Mark(Stage::kQueue, clock_.Now());
    const Prepared& prepared = job->prepared;
    last_height_ = prepared.height;
    last_width_ = prepared.width;
    pictures.push_back({DType::kF32,
                        {3, prepared.height, prepared.width},
                        reinterpret_cast<const std::byte*>(prepared.pixel_values.data())});
  }
  auto rows = tower_.Encode(pictures);
  CountBatch(batch.size());
  for (const JobPtr& job : batch) job->log.Mark(Stage::kEncode, clock_.Now());
  if (!rows.ok() && batch.size() > 1) {
    // One picture's trouble, or memory for so many at once: each gets its own answer.
    for (const JobPtr& job : batch) EncodeBatch({job});
    return;
  }
  NoteDevice(rows.status());
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!rows.ok()) {
      Finish(batch[i], rows.status(), false);
      continue;
    }
    batch[i]->log.Mark(Stage::kQueue, clock_.Now());
    Finish(batch[i], StoreRows(*batch[i], (*rows)[i]), false);
  }
}

void EncodePipeline::CountBatch(size_t images) {
  metrics_.OnBatch(images);
  base::MutexLock lock(mutex_);
  batches_ += 1;
}

absl::StatusOr<store::RecordPtr> EncodePipeline::StoreRows(Job& job, const Tensor& rows) {
  auto record = std::make_shared<store::EmbeddingRecord>();
  record->key = job.task.key;
  record->rows = rows.shape()[0];
  record->width = rows.shape()[1];
  record->grid_height = job.task.grid_height;
  record->grid_width = job.task.grid_width;
  record->model_revision = options_.model_revision;
  record->preprocessing = options_.preprocessing;
  record->created = absl::FromUnixMicros(absl::ToUnixMicros(clock_.Now()));
  record->quality = std::move(job.prepared.scores);
  auto stored = store::MakeRows(rows.f32(), record->rows, record->width, options_.record_dtype);
  if (!stored.ok()) {
    // The client did nothing wrong: weights or arithmetic did.
    return base::Error(absl::StatusCode::kInternal, "NONFINITE_ROWS", stored.status().message());
  }
  record->dtype = stored->dtype;
  record->data = std::move(stored->data);
  const StageTimes spent = job.log.Since(absl::InfinitePast());
  const absl::Status kept = store_.Put(
      record, spent[Stage::kImageDecode] + spent[Stage::kPreprocess] + spent[Stage::kEncode]);
  job.log.Mark(Stage::kStore, clock_.Now());
  metrics_.OnRows(record->rows, job.log.Since(absl::InfinitePast()), job.prepared.quality);
  if (!kept.ok()) {
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("embedding store: a record was not kept: ", kept.message()));
  }
  return store::RecordPtr(std::move(record));
}

}  // namespace tessera::vision
