#include "services/vision/vision_metrics.h"

#include "common/base/error.h"
#include "common/metrics/names.h"

namespace tessera::vision {
namespace {

using Counters = absl::flat_hash_map<std::string, metrics::Counter>;

// One counter for each reason that a verdict may have.
Counters FaultsOf(metrics::Metrics& metrics, Verdict verdict) {
  Counters counters;
  for (const char* reason : {"blur", "dark", "bright", "flat", "small"}) {
    counters.emplace(reason, metrics.GetCounter(metrics::kVisionQuality, {Name(verdict), reason}));
  }
  return counters;
}

metrics::Counter Outcome(metrics::Metrics& metrics, absl::string_view outcome) {
  return metrics.GetCounter(metrics::kVisionImages, {outcome});
}

}  // namespace

VisionMetrics::VisionMetrics(metrics::Metrics& metrics)
    : metrics_(metrics),
      encoder_(metrics),
      computed_(Outcome(metrics, "computed")),
      known_(Outcome(metrics, "known")),
      invalid_(Outcome(metrics, "invalid")),
      low_quality_(Outcome(metrics, "low_quality")),
      refused_(Outcome(metrics, "refused")),
      cancelled_(Outcome(metrics, "cancelled")),
      failed_(Outcome(metrics, "failed")),
      queued_(metrics.GetGauge(metrics::kVisionQueuedImages)),
      passed_(metrics.GetCounter(metrics::kVisionQuality, {Name(Verdict::kPass), "none"})),
      faults_{FaultsOf(metrics, Verdict::kWarn), FaultsOf(metrics, Verdict::kRefuse)} {}

void VisionMetrics::SetMemory(absl::string_view device, const kernels::MemoryUse& memory) const {
  const auto add = [&](const char* kind, size_t bytes) {
    metrics_.GetGauge(metrics::kDeviceMemory, {device, kind}).Add(static_cast<double>(bytes));
  };
  add("weights", memory.weights);
  add("kv_cache", memory.kv_cache);
  add("workspace", memory.buffers);
  add("other", 0);
}

void VisionMetrics::OnAnswer(const absl::Status& status, bool known) const {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return (known ? known_ : computed_).Increment();
    case absl::StatusCode::kInvalidArgument:
      return (base::ReasonOf(status) == "IMAGE_QUALITY" ? low_quality_ : invalid_).Increment();
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return refused_.Increment();
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      return cancelled_.Increment();
    default:
      return failed_.Increment();
  }
}

void VisionMetrics::OnVerdict(const QualityVerdict& verdict) const {
  if (verdict.verdict == Verdict::kPass) return passed_.Increment();
  const Counters& counters = faults_[verdict.verdict == Verdict::kWarn ? 0 : 1];
  for (const std::string& reason : verdict.reasons) {
    if (const auto found = counters.find(reason); found != counters.end()) {
      found->second.Increment();
    }
  }
}

}  // namespace tessera::vision
