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
#include "services/vision/encoder/encode_pipeline.h"
#include "services/vision/encoder/encoder_metrics.h"
#include "services/vision/image/quality.h"

namespace tessera::vision {

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
  // Those that the pipeline feeds.
  const EncoderMetrics& encoder() const { return encoder_; }

  VisionAnswers answers() const {
    return {static_cast<int64_t>(known_.value()), static_cast<int64_t>(computed_.value())};
  }
  void Update(const PipelineStats& now) const {
    queued_.Set(static_cast<double>(now.pending_images));
  }

 private:
  metrics::Metrics& metrics_;
  const EncoderMetrics encoder_;
  const metrics::Counter computed_, known_, invalid_, low_quality_, refused_, cancelled_, failed_;
  const metrics::Gauge queued_;
  const metrics::Counter passed_;
  const std::array<absl::flat_hash_map<std::string, metrics::Counter>, 2> faults_;  // warn, refuse
};

}  // namespace tessera::vision
