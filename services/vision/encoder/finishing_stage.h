#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/store/embedding_store.h"
#include "common/tensor/tensor.h"
#include "services/vision/encoder/encode_job.h"
#include "services/vision/encoder/encoder_metrics.h"
#include "services/vision/encoder/jobs_in_flight.h"

namespace tessera::vision {

struct FinishingOptions {
  DType record_dtype = DType::kF16;
  std::string preprocessing;   // into the records
  std::string model_revision;  // into the records
  size_t max_batches = 2;      // that wait here or are being finished
};

// They outlive the stage.
struct FinishingDeps {
  JobsInFlight& jobs;
  store::EmbeddingStore& store;
  base::Clock& clock;
  const EncoderMetrics& metrics;
};

// What the tower says of a picture.
struct EncodedPicture {
  JobPtr job;
  absl::StatusOr<Tensor> rows;  // f32 [rows, width]
};
using EncodedBatch = std::vector<EncodedPicture>;

// The thread behind the tower: rows become a record, which is stored, and the waiters are told (a
// verdict, a line of the log), in the order of the batches. Any thread.
class FinishingStage {
 public:
  FinishingStage(const FinishingOptions& options, const FinishingDeps& deps);
  // Finishes all that it has.
  ~FinishingStage();

  // Waits until fewer than max_batches are unfinished: to be asked before a batch is encoded.
  void AwaitRoom();
  // Never waits.
  void Push(EncodedBatch batch);

  struct Stats {
    bool has_work = false;  // a batch is unfinished
    int64_t batches = 0;    // finished since the start
  };
  Stats stats() const;

 private:
  void Loop();
  absl::StatusOr<store::RecordPtr> StoreRows(EncodeJob& job, const Tensor& rows);

  const FinishingOptions options_;
  const FinishingDeps deps_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  int64_t finished_ ABSL_GUARDED_BY(mutex_) = 0;              // batches
  std::deque<EncodedBatch> batches_ ABSL_GUARDED_BY(mutex_);  // the first is being finished
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace tessera::vision
