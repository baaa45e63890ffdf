#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "kernels/backend.h"
#include "services/decode/engine/engine_options.h"
#include "services/decode/model/batch_plan.h"

namespace tessera::decode {

// A step on the device: the forward pass, the choice of tokens, the wait for both. Owns backend,
// model and KV cache. The engine's thread, but for health; allocates nothing once warm.
class DeviceStep {
 public:
  // Ids at or beyond `vocabulary` are never chosen; `max_sequences`: of one step.
  DeviceStep(EngineDevice device, int32_t vocabulary, int32_t max_sequences);

  // Computes `plan` and chooses one token for each of its logits, as `sampling` says. Not OK: the
  // step failed, and nothing of it counts.
  absl::Status Compute(const BatchPlan& plan, absl::Span<const kernels::SamplingRow> sampling);
  // The tokens of the last Compute, one for each of plan.logit_tokens.
  absl::Span<const kernels::Sampled> sampled() const { return sampled_; }

  // Not OK once the device has failed: nothing can be computed any more. Any thread.
  absl::Status health() const;

 private:
  EngineDevice device_;
  const int32_t vocabulary_;
  std::vector<kernels::Sampled> sampled_;
  mutable base::Mutex mutex_;
  absl::Status health_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::decode
