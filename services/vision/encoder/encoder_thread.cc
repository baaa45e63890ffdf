#include "services/vision/encoder/encoder_thread.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/log.h"

namespace tessera::vision {

EncoderThread::EncoderThread(const EncoderOptions& options, const EncoderDeps& deps)
    : options_(options), deps_(deps) {
  CHECK_GE(options.max_batch_images, 1);
  thread_ = std::thread([this] { Loop(); });
}

EncoderThread::~EncoderThread() {
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
    ready_.SignalAll();
  }
  thread_.join();
}

void EncoderThread::Push(JobPtr job) {
  base::MutexLock lock(mutex_);
  queue_.push_back(std::move(job));
  ready_.Signal();
}

bool EncoderThread::Remove(const JobPtr& job) {
  base::MutexLock lock(mutex_);
  return std::erase(queue_, job) > 0;
}

EncoderThread::Stats EncoderThread::stats() const {
  base::MutexLock lock(mutex_);
  return {encoding_ || !queue_.empty(), batches_, health_};
}

void EncoderThread::Loop() {
  while (AwaitWork()) {
    deps_.finishing.AwaitRoom();
    if (const std::vector<JobPtr> batch = TakeBatch(); !batch.empty()) {
      EncodeBatch(batch);
    } else if (IsTrialDue()) {
      TryDevice();
    }
  }
}

// Until there is a job, or it is time to try the device; false when the thread is to end.
bool EncoderThread::AwaitWork() {
  base::MutexLock lock(mutex_);
  encoding_ = false;
  while (queue_.empty() && !stop_) {
    if (health_.ok()) {
      ready_.Wait(mutex_);
    } else if (deps_.clock.Now() < next_trial_) {
      deps_.clock.WaitUntil(ready_, mutex_, next_trial_);
    } else {
      break;
    }
  }
  return !stop_;
}

// The first job and those of its shape; none where nothing is wanted any more.
std::vector<JobPtr> EncoderThread::TakeBatch() {
  base::MutexLock lock(mutex_);
  std::vector<JobPtr> batch;
  const size_t most = static_cast<size_t>(options_.max_batch_images);
  for (auto it = queue_.begin(); it != queue_.end() && batch.size() < most;) {
    const Prepared& first = batch.empty() ? (*it)->prepared : batch[0]->prepared;
    if ((*it)->prepared.height != first.height || (*it)->prepared.width != first.width) {
      ++it;
      continue;
    }
    if (deps_.jobs.Move(**it, EncodeJob::Place::kEncoding)) batch.push_back(std::move(*it));
    it = queue_.erase(it);
  }
  encoding_ = !batch.empty();
  return batch;
}

bool EncoderThread::IsTrialDue() {
  base::MutexLock lock(mutex_);
  encoding_ = queue_.empty() && !health_.ok() && deps_.clock.Now() >= next_trial_;
  return encoding_;
}

void EncoderThread::TryDevice() {
  const std::vector<float> empty(3ull * last_height_ * last_width_);
  const auto rows = deps_.tower.Encode({{DType::kF32,
                                         {3, last_height_, last_width_},
                                         reinterpret_cast<const std::byte*>(empty.data())}});
  NoteDevice(rows.status());
  base::MutexLock lock(mutex_);
  batches_ += 1;
}

// A picture's trouble does not come again with the next one.
void EncoderThread::NoteDevice(const absl::Status& status) {
  constexpr int kMost = 3;
  base::MutexLock lock(mutex_);
  next_trial_ = deps_.clock.Now() + options_.device_retry;
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

void EncoderThread::EncodeBatch(const std::vector<JobPtr>& batch) {
  std::vector<TensorView> pictures;
  for (const JobPtr& job : batch) {
    job->log.Mark(Stage::kQueue, deps_.clock.Now());
    const Prepared& prepared = job->prepared;
    last_height_ = prepared.height;
    last_width_ = prepared.width;
    pictures.push_back({DType::kF32,
                        {3, prepared.height, prepared.width},
                        reinterpret_cast<const std::byte*>(prepared.pixel_values.data())});
  }
  auto rows = deps_.tower.Encode(pictures);
  CountBatch(batch.size());
  for (const JobPtr& job : batch) job->log.Mark(Stage::kEncode, deps_.clock.Now());
  if (!rows.ok() && batch.size() > 1) {
    // One picture's trouble, or memory for so many at once: each gets its own answer.
    for (const JobPtr& job : batch) EncodeBatch({job});
    return;
  }
  NoteDevice(rows.status());
  EncodedBatch encoded;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (rows.ok()) {
      encoded.push_back({batch[i], std::move((*rows)[i])});
    } else {
      encoded.push_back({batch[i], rows.status()});
    }
  }
  deps_.finishing.Push(std::move(encoded));
}

void EncoderThread::CountBatch(size_t images) {
  deps_.metrics.OnBatch(images);
  base::MutexLock lock(mutex_);
  batches_ += 1;
}

}  // namespace tessera::vision
