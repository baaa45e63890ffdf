#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/drain_rate.h"
#include "common/base/mutex.h"
#include "services/vision/encoder/encode_job.h"
#include "services/vision/encoder/pending_pictures.h"

namespace tessera::vision {

// Pictures on their way to rows and who waits for them: one job for each key, as many pictures and
// bytes as may be. Knows where each job is, and runs none. Any thread.
class JobsInFlight {
 public:
  // `clock` outlives it.
  JobsInFlight(const PendingLimits& limits, base::Clock& clock);

  WaiterId NewWaiter();
  // Room for a picture's bytes. As PendingPictures says, or UNAVAILABLE (DRAINING), at once.
  absl::StatusOr<std::unique_ptr<PendingPictures::Room>> Reserve(size_t bytes,
                                                                 absl::string_view tenant);
  // The waiter joins the job of its key, or gets a new one: that is the result, at kPrepareQueue;
  // null where there was one. Errors as of Reserve. REQUIRES: task.room.
  absl::StatusOr<JobPtr> Join(WaiterId waiter, EncodeTask task);
  // The waiter gets CANCELLED, if it still waits. With the last one the job is dropped, unless the
  // tower has it already: the result, for whoever has it in a queue to take it out and Release it.
  JobPtr Leave(WaiterId waiter);

  // A job goes on to `place`. False where it is not wanted.
  bool Move(EncodeJob& job, EncodeJob::Place place);
  // False where nobody waits, or everything stops; then the job is released.
  bool Wanted(EncodeJob& job);
  // Once: a job's place among the pending is free, and so is its bytes' room.
  void Release(EncodeJob& job);
  // The end of a job that was not dropped: it is released and its waiters are told.
  void Finish(const JobPtr& job, const absl::StatusOr<store::RecordPtr>& record, bool existed);

  // Refuses new pictures; true when all are done before `deadline`.
  bool Drain(absl::Time deadline);
  // Refuses new pictures, wants none that is here, and tells its waiters UNAVAILABLE.
  void Stop();

  int64_t pending() const;
  bool draining() const;

 private:
  void ReleaseLocked(EncodeJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Admit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetPlace(EncodeJob& job, EncodeJob::Place place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until all that are pending will have been encoded, and one more.
  absl::Duration TimeForAll() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ObserveDrain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_images_;
  base::Clock& clock_;
  PendingPictures rooms_;
  mutable base::Mutex mutex_;
  base::CondVar idle_;
  // Open to more waiters.
  absl::flat_hash_map<store::EmbeddingKey, JobPtr> jobs_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<WaiterId, JobPtr> waiters_ ABSL_GUARDED_BY(mutex_);
  WaiterId last_waiter_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t pending_ ABSL_GUARDED_BY(mutex_) = 0;  // jobs that are not over
  size_t queued_ ABSL_GUARDED_BY(mutex_) = 0;   // of these, in a queue
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;  // jobs that are over
  base::DrainRate rate_ ABSL_GUARDED_BY(mutex_);
  int answers_ ABSL_GUARDED_BY(mutex_) = 0;  // jobs whose waiters are being told
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tessera::vision
