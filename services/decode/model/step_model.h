#pragma once

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "services/decode/model/batch_plan.h"

namespace tessera::decode {

struct StepOutput {
  // [plan.logit_tokens, vocab] in device memory; valid until the next Forward.
  kernels::DeviceView logits;
};

// One pass of a decoder over a batch. Owned and called by the engine thread alone.
class StepModel {
 public:
  virtual ~StepModel() = default;

  // Enqueues the step on the model's backend: writes the keys and values of every token of `plan`
  // into `cache`, then computes the logits asked for. The caller synchronizes; `plan` and the rows
  // it borrows live until then. REQUIRES: a well-formed plan.
  // RESOURCE_EXHAUSTED when the workspace for a larger plan than before cannot be had.
  virtual absl::StatusOr<StepOutput> Forward(const BatchPlan& plan, kernels::KvCache& cache) = 0;
};

}  // namespace tessera::decode
