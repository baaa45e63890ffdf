#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/metrics/metrics.h"
#include "kernels/backend.h"
#include "services/vision/encoder/stage_times.h"
#include "services/vision/image/quality.h"

namespace tessera::vision {

// What the pipeline holds and has done.
struct PipelineStats {
  int64_t pending_images = 0;     // accepted, not yet rows
  bool encoder_has_work = false;  // a picture is in the tower, or could be
  int64_t batches = 0;            // that the tower has been through since the start
  bool draining = false;          // new pictures are refused
  // Not OK: the tower has failed for some time; why, at last.
  absl::Status health = absl::OkStatus();
};

// Calls that were answered with rows, since the start.
struct VisionAnswers {
  int64_t known = 0;     // the record was there
  int64_t computed = 0;  // the tower made it
};

// The vision service's series, all at 0 from the start. Any thread but Update's, which is one at a
// time; nothing allocates.
class VisionMetrics {
 public:
  // `metrics` outlives it.
  explicit VisionMetrics(metrics::Metrics& metrics);

  // What this service holds on `device` ("cpu", "cuda:0"), beside what others of the process do.
  // Once, at the start.
  void SetMemory(absl::string_view device, const kernels::MemoryUse& memory) const;

  // A call about a picture has its answer; `known`: the record was there.
  void OnAnswer(const absl::Status& status, bool known) const;
  void OnVerdict(const QualityVerdict& verdict) const;
  // The tower has been through a batch.
  void OnBatch(size_t images) const;
  // A picture has become rows; `quality` is the part of preprocessing that scored it.
  void OnRows(int64_t rows, const StageTimes& times, absl::Duration quality) const;

  VisionAnswers answers() const {
    return {static_cast<int64_t>(known_.value()), static_cast<int64_t>(computed_.value())};
  }
  void Update(const PipelineStats& now) const {
    queued_.Set(static_cast<double>(now.pending_images));
  }

 private:
  metrics::Metrics& metrics_;
  const metrics::Counter computed_, known_, invalid_, low_quality_, refused_, cancelled_, failed_;
  const metrics::Counter batches_, rows_produced_, rows_kept_;
  const metrics::Histogram batch_images_;
  const metrics::Gauge queued_;
  const metrics::Histogram queue_, decode_, quality_, preprocess_, encode_, store_;
  const metrics::Counter passed_;
  const std::array<absl::flat_hash_map<std::string, metrics::Counter>, 2> faults_;  // warn, refuse
};

}  // namespace tessera::vision
