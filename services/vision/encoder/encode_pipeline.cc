#include "services/vision/encoder/encode_pipeline.h"

#include <utility>

#include "common/base/status_macros.h"

namespace tessera::vision {

EncodePipeline::EncodePipeline(const PipelineOptions& options, PrepareSteps steps,
                               const PipelineDeps& deps)
    : jobs_({options.max_pending_bytes, options.max_pending_images, options.tenant_share},
            deps.clock),
      finishing_({options.record_dtype, options.preprocessing, options.model_revision,
                  options.max_unfinished_batches},
                 {jobs_, deps.store, deps.clock, deps.metrics}),
      encoder_({options.max_batch_images, options.device_retry},
               {jobs_, deps.tower, finishing_, deps.clock, deps.metrics}),
      prepare_(
          {options.prepare_threads, options.max_decode_bytes}, std::move(steps),
          {jobs_, deps.store, deps.clock, [this](JobPtr job) { encoder_.Push(std::move(job)); }}) {}

EncodePipeline::~EncodePipeline() { jobs_.Stop(); }

absl::Status EncodePipeline::Submit(WaiterId waiter, EncodeTask task) {
  ASSIGN_OR_RETURN(JobPtr job, jobs_.Join(waiter, std::move(task)));
  if (job != nullptr) prepare_.Push(std::move(job));
  return absl::OkStatus();
}

void EncodePipeline::Cancel(WaiterId waiter) {
  const JobPtr dropped = jobs_.Leave(waiter);
  if (dropped == nullptr) return;
  // Otherwise a thread has it, and gives its place back when it sees the mark.
  if (prepare_.Remove(dropped) || encoder_.Remove(dropped)) jobs_.Release(*dropped);
}

PipelineStats EncodePipeline::stats() const {
  const EncoderThread::Stats encoder = encoder_.stats();
  const FinishingStage::Stats finishing = finishing_.stats();
  return {.pending_images = jobs_.pending(),
          .encoder_has_work = encoder.has_work,
          .batches = encoder.batches,
          .finishing_has_work = finishing.has_work,
          .finished_batches = finishing.batches,
          .draining = jobs_.draining(),
          .health = encoder.health};
}

}  // namespace tessera::vision
