#include "services/decode/engine/engine_loop.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace tessera::decode {

EngineLoop::EngineLoop(const EngineOptions& options, EngineDevice device, base::Clock& clock,
                       Hooks hooks)
    : options_(options),
      device_(std::move(device)),
      clock_(clock),
      hooks_(std::move(hooks)),
      pool_(options.blocks, options.block_size),
      scheduler_(options.scheduler, pool_) {
  const size_t sequences = options_.scheduler.max_sequences;
  sampled_.reserve(sequences);
  sampled_ids_.reserve(sequences);
  runs_.reserve(sequences);
  finite_.reserve(sequences);
  Publish();
}

EngineLoop::~EngineLoop() { CHECK(requests_.empty()); }

bool EngineLoop::Step() {
  const absl::Time begin = clock_.Now();
  EndExpired(begin);
  const BatchPlan& plan = scheduler_.Next();
  if (plan.sequences() == 0) return false;
  MarkStarted(begin);
  if (absl::Status status = Compute(plan); !status.ok()) {
    FailPlanned(status);
    return true;
  }
  GatherRuns();
  const absl::Time end = clock_.Now();
  counted_.steps += 1;
  size_t at = 0;
  for (const Progress& progress : scheduler_.Commit(runs_)) Deliver(progress, finite_[at++], end);
  Publish();
  return true;
}

void EngineLoop::MarkStarted(absl::Time now) {
  for (const Sequence* sequence : scheduler_.planned()) {
    ActiveRequest& request = *requests_.at(sequence->id);
    if (request.first_step == absl::InfinitePast()) {
      request.first_step = now;
      request.stage = Stage::kPrefill;
      request.blocks_taken = static_cast<int32_t>(sequence->blocks.size());
    }
  }
}

// Logits, samples, and the wait for both.
absl::Status EngineLoop::Compute(const BatchPlan& plan) {
  absl::StatusOr<StepOutput> output = device_.model->Forward(plan, device_.cache);
  sampled_.assign(plan.logit_tokens.size(), kernels::Sampled());
  if (output.ok() && !sampled_.empty()) {
    kernels::SampleParams params;
    params.logits = output->logits;
    params.id_limit = options_.vocabulary;
    params.rows = scheduler_.sampling();
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

// One run of tokens per sequence of the plan: what was sampled, nothing where the prompt goes on.
void EngineLoop::GatherRuns() {
  runs_.assign(scheduler_.planned().size(), TokenRun());
  finite_.assign(scheduler_.planned().size(), true);
  sampled_ids_.clear();
  for (const kernels::Sampled& sampled : sampled_) sampled_ids_.push_back(sampled.id);
  const absl::Span<const int32_t> owners = scheduler_.sampled_sequences();
  for (size_t i = 0; i < owners.size(); ++i) {
    finite_[owners[i]] = sampled_[i].finite;
    if (sampled_[i].finite) runs_[owners[i]] = TokenRun(&sampled_ids_[i], 1);
  }
  const std::vector<int32_t>& begin = scheduler_.plan().query_begin;
  for (size_t s = 0; s < scheduler_.planned().size(); ++s) {
    const Sequence& sequence = *scheduler_.planned()[s];
    if (sequence.prefilling()) counted_.prompt_tokens += begin[s + 1] - begin[s];
  }
}

void EngineLoop::Deliver(const Progress& progress, bool finite, absl::Time now) {
  Sequence& sequence = *progress.sequence;
  ActiveRequest& request = *requests_.at(sequence.id);
  counted_.generation_tokens += progress.new_tokens;
  if (!finite) {
    counted_.nonfinite_logits += 1;
    End(request, base::Error(absl::StatusCode::kInternal, "NONFINITE_LOGITS",
                             absl::StrCat("the model computed NaN or infinity for token ",
                                          sequence.generated.size(), " of the answer")));
    return;
  }
  if (!sequence.prefilling() && request.stage == Stage::kPrefill) {
    request.stage = Stage::kGeneration;
    request.first_token = now;
    request.last_token = now;
    for (ActiveRequest::Picture& picture : request.pictures) picture.record = nullptr;
  }
  if (progress.new_tokens > 0) {
    request.last_token = now;
    const absl::Span<const int32_t> ids(sequence.generated);
    const SinkAnswer answer = request.sink->OnTokens(ids.last(progress.new_tokens));
    if (answer == SinkAnswer::kFull) {
      End(request, base::Error(absl::StatusCode::kResourceExhausted, "SLOW_CLIENT",
                               "the client does not read its answer; the request was aborted"));
      return;
    }
    if (answer == SinkAnswer::kStop) sequence.finish = FinishReason::kStop;
  }
  if (sequence.finish != FinishReason::kNone) End(request, absl::OkStatus());
}

void EngineLoop::FailPlanned(const absl::Status& status) {
  scheduler_.Abandon();
  const std::vector<Sequence*> failed(scheduler_.planned().begin(), scheduler_.planned().end());
  for (const Sequence* sequence : failed) End(*requests_.at(sequence->id), status);
  if (absl::Status broken = health(); !broken.ok()) EndAll(broken);
}

void EngineLoop::End(ActiveRequest& request, const absl::Status& status) {
  const absl::Time now = clock_.Now();
  if (request.stage == Stage::kFetch) request.fetch += now - request.stage_begin;
  if (request.stage == Stage::kRows) request.rows_wait += now - request.stage_begin;
  scheduler_.Remove(request.sequence);
  CountEnd(request, status);
  const auto node = requests_.extract(request.sequence.id);
  Publish();
  request.sink->OnEnd(status, request.OutcomeAt(now));
  hooks_.ended();
}

void EngineLoop::CountEnd(const ActiveRequest& request, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      (request.sequence.finish == FinishReason::kStop ? counted_.finished_stop
                                                      : counted_.finished_length) += 1;
      return;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      counted_.finished_abort += 1;
      return;
    default:
      counted_.finished_error += 1;
  }
}

void EngineLoop::EndAll(const absl::Status& status) {
  while (!requests_.empty()) End(*requests_.begin()->second, status);
}

void EngineLoop::EndExpired(absl::Time now) {
  if (now < next_deadline_) return;
  std::vector<ActiveRequest*> expired;
  for (const auto& [id, request] : requests_) {
    if (request->deadline <= now) expired.push_back(request.get());
  }
  for (ActiveRequest* request : expired) {
    const char* stage = Name(request->stage);
    End(*request,
        base::Error(absl::StatusCode::kDeadlineExceeded, absl::StrCat("DEADLINE_IN_", stage),
                    absl::StrCat("the deadline passed in stage ", stage, " after ",
                                 absl::FormatDuration(now - request->arrival))));
  }
  UpdateNextDeadline();
}

void EngineLoop::UpdateNextDeadline() {
  next_deadline_ = absl::InfiniteFuture();
  for (const auto& [id, request] : requests_) {
    next_deadline_ = std::min(next_deadline_, request->deadline);
  }
}

void EngineLoop::Publish() {
  counted_.running = scheduler_.running();
  counted_.waiting = static_cast<int64_t>(requests_.size()) - scheduler_.running();
  counted_.blocks_used = pool_.used();
  counted_.blocks_total = pool_.total();
  base::MutexLock lock(mutex_);
  published_ = counted_;
}

EngineStats EngineLoop::stats() const {
  base::MutexLock lock(mutex_);
  return published_;
}

absl::Status EngineLoop::health() const {
  base::MutexLock lock(mutex_);
  return health_;
}

}  // namespace tessera::decode
