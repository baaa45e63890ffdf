#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "services/vision/encoder/stage_times.h"

namespace tessera::vision {

// The series that the pipeline feeds, all at 0 from the start. Any thread; nothing allocates.
class EncoderMetrics {
 public:
  // `metrics` outlives it.
  explicit EncoderMetrics(metrics::Metrics& metrics);

  // The tower has been through a batch.
  void OnBatch(size_t images) const;
  // A picture has become rows; `quality` is the part of preprocessing that scored it.
  void OnRows(int64_t rows, const StageTimes& times, absl::Duration quality) const;

 private:
  const metrics::Counter batches_, rows_produced_, rows_kept_;
  const metrics::Histogram batch_images_;
  const metrics::Histogram queue_, decode_, quality_, preprocess_, encode_, store_;
};

}  // namespace tessera::vision
