#pragma once

#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "services/vision/encoder/encode_job.h"
#include "services/vision/encoder/encoder_metrics.h"
#include "services/vision/encoder/finishing_stage.h"
#include "services/vision/encoder/jobs_in_flight.h"
#include "services/vision/tower/vision_tower.h"

namespace tessera::vision {

struct EncoderOptions {
  int max_batch_images = 4;
  absl::Duration device_retry = absl::Seconds(5);  // how often a failed device is tried
};

// They outlive the thread. Nobody else uses the tower meanwhile.
struct EncoderDeps {
  JobsInFlight& jobs;
  VisionTower& tower;
  FinishingStage& finishing;
  base::Clock& clock;
  const EncoderMetrics& metrics;
};

// The one thread that uses the tower: takes batches of equal shape and hands their rows on. A
// device that failed gets no pictures from others once they hear of it, so it is tried with an
// empty one until it works. Any thread may push and ask.
class EncoderThread {
 public:
  struct Stats {
    bool has_work = false;  // a picture is in the tower, or could be
    int64_t batches = 0;    // that the tower has been through since the start
    absl::Status health;    // not OK: the tower has failed for some time; why, at last
  };

  EncoderThread(const EncoderOptions& options, const EncoderDeps& deps);
  // Ends the batch that it has; what waits is left. REQUIRES: the jobs have been stopped.
  ~EncoderThread();

  // A prepared job, at kEncodeQueue.
  void Push(JobPtr job);
  // Of a job that was dropped: true where it waited here.
  bool Remove(const JobPtr& job);

  Stats stats() const;

 private:
  void Loop();
  bool AwaitWork();
  std::vector<JobPtr> TakeBatch();
  bool IsTrialDue();
  void TryDevice();
  void EncodeBatch(const std::vector<JobPtr>& batch);
  void CountBatch(size_t images);
  // Of a batch that has its answer.
  void NoteDevice(const absl::Status& status);

  const EncoderOptions options_;
  const EncoderDeps deps_;
  int last_height_ = 0, last_width_ = 0;  // of a batch; the thread's own
  mutable base::Mutex mutex_;
  base::CondVar ready_;
  std::deque<JobPtr> queue_ ABSL_GUARDED_BY(mutex_);
  bool encoding_ ABSL_GUARDED_BY(mutex_) = false;    // the tower has a batch
  int64_t batches_ ABSL_GUARDED_BY(mutex_) = 0;      // that the tower has been through
  int device_failures_ ABSL_GUARDED_BY(mutex_) = 0;  // in a row, of single pictures
  absl::Status health_ ABSL_GUARDED_BY(mutex_);      // not OK: the last of too many failures
  absl::Time next_trial_ ABSL_GUARDED_BY(mutex_);    // of a device that is not healthy
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace tessera::vision
