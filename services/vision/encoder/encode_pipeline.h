#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/store/embedding_store.h"
#include "common/tensor/dtype.h"
#include "services/vision/encoder/encode_job.h"
#include "services/vision/encoder/encoder_metrics.h"
#include "services/vision/encoder/encoder_thread.h"
#include "services/vision/encoder/finishing_stage.h"
#include "services/vision/encoder/jobs_in_flight.h"
#include "services/vision/encoder/pending_pictures.h"
#include "services/vision/encoder/prepare_stage.h"
#include "services/vision/tower/vision_tower.h"

namespace tessera::vision {

struct PipelineOptions {
  int prepare_threads = 2;
  size_t max_pending_images = 64;
  size_t max_pending_bytes = 256ull << 20;  // encoded, and of pictures on their way here
  size_t max_decode_bytes = 512ull << 20;   // by estimate, of all pictures being decoded together
  double tenant_share = 1;                  // of both pending, that a tenant with a name may have
  int max_batch_images = 4;
  size_t max_unfinished_batches = 2;               // encoded, their records not yet stored
  absl::Duration device_retry = absl::Seconds(5);  // how often a failed device is tried
  DType record_dtype = DType::kF16;
  std::string preprocessing;   // into the records
  std::string model_revision;  // into the records
};

// What the pipeline holds and has done.
struct PipelineStats {
  int64_t pending_images = 0;       // accepted, not yet rows
  bool encoder_has_work = false;    // a picture is in the tower, or could be
  int64_t batches = 0;              // that the tower has been through since the start
  bool finishing_has_work = false;  // rows are not a record yet, or somebody is not told
  int64_t finished_batches = 0;     // since the start
  bool draining = false;            // new pictures are refused
  // Not OK: the tower has failed for some time; why, at last.
  absl::Status health = absl::OkStatus();
};

// All outlive the pipeline. Nobody else uses the tower meanwhile.
struct PipelineDeps {
  VisionTower& tower;
  store::EmbeddingStore& store;
  base::Clock& clock;
  const EncoderMetrics& metrics;
};

// Pictures to records: some threads decode and preprocess, one encodes batches of equal shape, one
// stores the rows and answers. Equal keys in flight share one encode. Any thread.
class EncodePipeline {
 public:
  EncodePipeline(const PipelineOptions& options, PrepareSteps steps, const PipelineDeps& deps);
  // Waiters that are left get UNAVAILABLE; what the tower has is stored even so.
  ~EncodePipeline();

  // To name a waiter before it is submitted, so that it can be cancelled from anywhere.
  WaiterId NewWaiter() { return jobs_.NewWaiter(); }
  // Room for a picture's bytes, to be had before they are taken in. As PendingPictures says, or
  // UNAVAILABLE (DRAINING), at once. The pipeline outlives it.
  absl::StatusOr<std::unique_ptr<PendingPictures::Room>> Reserve(size_t bytes,
                                                                 absl::string_view tenant = {}) {
    return jobs_.Reserve(bytes, tenant);
  }
  // REQUIRES: task.room, which is given back when the work is done. Errors as of Reserve; those of
  // `done` beside those of the steps: INTERNAL, reason NONFINITE_ROWS, and what the tower says.
  absl::Status Submit(WaiterId waiter, EncodeTask task);
  // `done` gets CANCELLED unless it was called already. The work goes on while another waits; with
  // the last it is dropped, unless the tower already has it: then the rows are stored.
  void Cancel(WaiterId waiter);

  // Refuses new pictures; true when all are done before `deadline`.
  bool Drain(absl::Time deadline) { return jobs_.Drain(deadline); }

  PipelineStats stats() const;

 private:
  // In the order of birth: each hands what it has done to the one before.
  JobsInFlight jobs_;
  FinishingStage finishing_;
  EncoderThread encoder_;
  PrepareStage prepare_;
};

}  // namespace tessera::vision
