#include "services/vision/encoder/finishing_stage.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/store/rows.h"

namespace tessera::vision {

FinishingStage::FinishingStage(const FinishingOptions& options, const FinishingDeps& deps)
    : options_(options), deps_(deps) {
  CHECK_GE(options.max_batches, 1u);
  thread_ = std::thread([this] { Loop(); });
}

FinishingStage::~FinishingStage() {
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void FinishingStage::AwaitRoom() {
  base::MutexLock lock(mutex_);
  while (batches_.size() >= options_.max_batches) changed_.Wait(mutex_);
}

void FinishingStage::Push(EncodedBatch batch) {
  base::MutexLock lock(mutex_);
  batches_.push_back(std::move(batch));
  changed_.SignalAll();
}

FinishingStage::Stats FinishingStage::stats() const {
  base::MutexLock lock(mutex_);
  return {!batches_.empty(), finished_};
}

void FinishingStage::Loop() {
  while (true) {
    EncodedBatch batch;
    {
      base::MutexLock lock(mutex_);
      while (batches_.empty() && !stop_) changed_.Wait(mutex_);
      if (batches_.empty()) return;
      batch = std::move(batches_.front());
    }
    for (EncodedPicture& picture : batch) {
      picture.job->log.Mark(Stage::kQueue, deps_.clock.Now());
      deps_.jobs.Finish(picture.job,
                        picture.rows.ok() ? StoreRows(*picture.job, *picture.rows)
                                          : absl::StatusOr<store::RecordPtr>(picture.rows.status()),
                        false);
    }
    base::MutexLock lock(mutex_);
    batches_.pop_front();
    ++finished_;
    changed_.SignalAll();
  }
}

absl::StatusOr<store::RecordPtr> FinishingStage::StoreRows(EncodeJob& job, const Tensor& rows) {
  auto record = std::make_shared<store::EmbeddingRecord>();
  record->key = job.task.key;
  record->rows = rows.shape()[0];
  record->width = rows.shape()[1];
  record->grid_height = job.task.grid_height;
  record->grid_width = job.task.grid_width;
  record->model_revision = options_.model_revision;
  record->preprocessing = options_.preprocessing;
  record->created = absl::FromUnixMicros(absl::ToUnixMicros(deps_.clock.Now()));
  record->quality = std::move(job.prepared.scores);
  auto stored = store::MakeRows(rows.f32(), record->rows, record->width, options_.record_dtype);
  if (!stored.ok()) {
    // The client did nothing wrong: weights or arithmetic did.
    return base::Error(absl::StatusCode::kInternal, "NONFINITE_ROWS", stored.status().message());
  }
  record->dtype = stored->dtype;
  record->data = std::move(stored->data);
  const StageTimes spent = job.log.Since(absl::InfinitePast());
  const absl::Status kept = deps_.store.Put(
      record, spent[Stage::kImageDecode] + spent[Stage::kPreprocess] + spent[Stage::kEncode]);
  job.log.Mark(Stage::kStore, deps_.clock.Now());
  deps_.metrics.OnRows(record->rows, job.log.Since(absl::InfinitePast()), job.prepared.quality);
  if (!kept.ok()) {
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("embedding store: a record was not kept: ", kept.message()));
  }
  return store::RecordPtr(std::move(record));
}

}  // namespace tessera::vision
