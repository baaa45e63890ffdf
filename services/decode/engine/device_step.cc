#include "services/decode/engine/device_step.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/log.h"

namespace tessera::decode {

DeviceStep::DeviceStep(EngineDevice device, int32_t vocabulary, int32_t max_sequences)
    : device_(std::move(device)), vocabulary_(vocabulary) {
  sampled_.reserve(static_cast<size_t>(max_sequences));
}

absl::Status DeviceStep::Compute(const BatchPlan& plan,
                                 absl::Span<const kernels::SamplingRow> sampling) {
  absl::StatusOr<StepOutput> output = device_.model->Forward(plan, device_.cache);
  sampled_.assign(plan.logit_tokens.size(), kernels::Sampled());
  if (output.ok() && !sampled_.empty()) {
    kernels::SampleParams params;
    params.logits = output->logits;
    params.id_limit = vocabulary_;
    params.rows = sampling;
    params.out = absl::MakeSpan(sampled_);
    device_.backend->Sample(params);
  }
  // Also after a failed Forward: what it enqueued still reads the plan.
  if (absl::Status status = device_.backend->Synchronize(); !status.ok()) {
    base::Log(base::LogLevel::kError, absl::StrCat("the device failed: ", status.ToString()));
    base::MutexLock lock(mutex_);
    health_ = base::WithReason(status, "DEVICE_FAILED");
    return health_;
  }
  return output.status();
}

absl::Status DeviceStep::health() const {
  base::MutexLock lock(mutex_);
  return health_;
}

}  // namespace tessera::decode
