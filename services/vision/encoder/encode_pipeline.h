#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/drain_rate.h"
#include "common/store/embedding_store.h"
#include "services/vision/encoder/pending_pictures.h"
#include "services/vision/encoder/stage_times.h"
#include "services/vision/image/image.h"
#include "services/vision/preprocess/preprocess.h"
#include "services/vision/tower/vision_tower.h"
#include "services/vision/vision_metrics.h"

namespace tessera::vision {

// A picture that is ready for the tower.
struct Prepared {
  int height = 0, width = 0;             // pixels
  std::vector<float> pixel_values;       // [3, height, width]
  std::map<std::string, double> scores;  // quality
  absl::Duration quality;                // of preprocessing: scoring and judging
};

// What is done with a picture before the tower. Pure; called from several threads at once.
struct PrepareSteps {
  std::function<absl::StatusOr<RgbImage>(absl::string_view bytes)> decode;
  // Quality is scored, and refused, here.
  std::function<absl::StatusOr<Prepared>(const RgbImage& image)> preprocess;
};

struct PipelineOptions {
  int prepare_threads = 2;
  size_t max_pending_images = 64;
  size_t max_pending_bytes = 256ull << 20;  // encoded, and of pictures on their way here
  size_t max_decode_bytes = 512ull << 20;   // by estimate, of all pictures being decoded together
  double tenant_share = 1;                  // of both pending, that a tenant with a name may have
  int max_batch_images = 4;
  absl::Duration device_retry = absl::Seconds(5);  // how often a failed device is tried
  DType record_dtype = DType::kF16;
  std::string preprocessing;   // into the records
  std::string model_revision;  // likewise
};

struct Encoded {
  store::RecordPtr record;
  bool existed = false;               // found in the store after all
  StageTimes stages;                  // as the waiter saw them
  std::vector<StageSpan> spans = {};  // likewise
};

struct EncodeTask {
  store::EmbeddingKey key;
  std::string bytes;  // the encoded picture, checked against the key's digest
  std::unique_ptr<PendingPictures::Room> room;  // of `bytes`, from the pipeline that gets them
  size_t decode_bytes = 0;                      // ImageHeader's estimate
  int grid_height = 0, grid_width = 0;
  // Called exactly once if Submit returned OK, from a thread of the pipeline or inside Cancel or
  // the destructor. Must not block.
  std::function<void(absl::StatusOr<Encoded>)> done;
};

// What a pipeline works with; all outlive it. Nobody else uses the tower meanwhile.
struct PipelineParts {
  VisionTower& tower;
  store::EmbeddingStore& store;
  base::Clock& clock;
  const VisionMetrics& metrics;
};

// Pictures to records: some threads decode and preprocess, one encodes batches of equal shape and
// stores the rows. It alone uses the tower. Equal keys in flight share one encode. A device that
// failed gets no pictures from others once they hear of it, so it is tried with an empty one until
// it works. Any thread.
class EncodePipeline {
 public:
  using WaiterId = uint64_t;

  EncodePipeline(const PipelineOptions& options, PrepareSteps steps, const PipelineParts& parts);
  // Waiters that are left get UNAVAILABLE.
  ~EncodePipeline();

  // To name a waiter before it is submitted, so that it can be cancelled from anywhere.
  WaiterId NewWaiter();
  // Room for a picture's bytes, to be had before they are taken in. As PendingPictures says, or
  // UNAVAILABLE (DRAINING), at once. The pipeline outlives it.
  absl::StatusOr<std::unique_ptr<PendingPictures::Room>> Reserve(size_t bytes,
                                                                 absl::string_view tenant = {});
  // REQUIRES: task.room, which is given back when the work is done. Errors as of Reserve; those of
  // `done` beside those of the steps: INTERNAL, reason NONFINITE_ROWS, and what the tower says.
  absl::Status Submit(WaiterId waiter, EncodeTask task);
  // `done` gets CANCELLED unless it was called already. The work goes on while another waits; with
  // the last it is dropped, unless the tower already has it: then the rows are stored.
  void Cancel(WaiterId waiter);

  // Refuses new pictures; true when all are done before `deadline`.
  bool Drain(absl::Time deadline);

  PipelineStats stats() const;

 private:
  struct Waiter {
    WaiterId id;
    absl::Time joined;
    std::function<void(absl::StatusOr<Encoded>)> done;
  };
  struct Job;
  using JobPtr = std::shared_ptr<Job>;

  void PrepareLoop();
  void Prepare(const JobPtr& job);
  bool Lookup(const JobPtr& job);
  absl::Status DecodeAndPreprocess(const JobPtr& job);
  void EncodeLoop();
  std::optional<std::vector<JobPtr>> NextBatch();
  void TryDevice();
  void EncodeBatch(const std::vector<JobPtr>& batch);
  void CountBatch(size_t images);
  // Of a batch that has its answer.
  void NoteDevice(const absl::Status& status);
  absl::StatusOr<store::RecordPtr> StoreRows(Job& job, const Tensor& rows);
  void Finish(const JobPtr& job, absl::StatusOr<store::RecordPtr> record, bool existed);
  bool Dropped(const JobPtr& job);
  void Release(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Admit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until all that are pending will have been encoded, and one more.
  absl::Duration TimeForAll() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ObserveDrain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PipelineOptions options_;
  const PrepareSteps steps_;
  VisionTower& tower_;
  store::EmbeddingStore& store_;
  base::Clock& clock_;
  const VisionMetrics& metrics_;

  PendingPictures rooms_;
  mutable base::Mutex mutex_;
  base::CondVar prepare_ready_, encode_ready_, decode_room_, idle_;
  std::deque<JobPtr> to_prepare_ ABSL_GUARDED_BY(mutex_);
  std::deque<JobPtr> to_encode_ ABSL_GUARDED_BY(mutex_);
  // In flight and open to more waiters.
  absl::flat_hash_map<store::EmbeddingKey, JobPtr> jobs_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<WaiterId, JobPtr> waiters_ ABSL_GUARDED_BY(mutex_);
  WaiterId last_waiter_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t pending_images_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;  // pictures
  base::DrainRate rate_ ABSL_GUARDED_BY(mutex_);
  size_t decode_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool encoding_ ABSL_GUARDED_BY(mutex_) = false;    // the tower has a batch
  int64_t batches_ ABSL_GUARDED_BY(mutex_) = 0;      // that the tower has been through
  int device_failures_ ABSL_GUARDED_BY(mutex_) = 0;  // in a row, of single pictures
  absl::Status health_ ABSL_GUARDED_BY(mutex_);      // not OK: the last of too many of them
  absl::Time next_try_ ABSL_GUARDED_BY(mutex_);      // of a device that is not healthy
  int last_height_ = 0, last_width_ = 0;             // of a batch; by the thread that encodes
  int finishing_ ABSL_GUARDED_BY(mutex_) = 0;        // jobs whose waiters are being called
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace tessera::vision
