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
      cache_(options.prefix_cache_blocks, pool_),
      scheduler_(options.scheduler, pool_, cache_) {
  const size_t sequences = options_.scheduler.max_sequences;
  sampled_.reserve(sequences);
  sampled_ids_.reserve(sequences);
  runs_.reserve(sequences);
  sample_of_.reserve(sequences);
  Publish();
}

EngineLoop::~EngineLoop() { CHECK(requests_.empty()); }

bool EngineLoop::Step() {
  const absl::Time begin = clock_.Now();
  EndExpired(begin);
  const BatchPlan& plan = scheduler_.Next();
  // By id: when the device fails, all of them end in this step.
  expelled_.clear();
  for (const Sequence* sequence : scheduler_.expelled()) expelled_.push_back(sequence->id);
  if (plan.sequences() > 0) {
    MarkStarted(begin);
    if (absl::Status status = Compute(plan); status.ok()) {
      StepReport report = GatherRuns();
      const absl::Time end = clock_.Now();
      report.duration = end - begin;
      counted_.steps += 1;
      if (options_.observer.stepped) options_.observer.stepped(report);
      size_t s = 0;
      for (const Progress& progress : scheduler_.Commit(runs_)) Deliver(progress, s++, end);
    } else {
      FailPlanned(status);
    }
  } else if (expelled_.empty()) {
    Publish();  // of what came since
    return false;
  }
  ProceedExpelled();
  Publish();
  return true;
}

// What Next put outside.
void EngineLoop::ProceedExpelled() {
  for (const SequenceId id : expelled_) {
    const auto it = requests_.find(id);
    if (it != requests_.end()) Proceed(*it->second);
  }
}

void EngineLoop::MarkStarted(absl::Time now) {
  for (const Sequence* sequence : scheduler_.planned()) {
    ActiveRequest& request = *requests_.at(sequence->id);
    if (!request.stepped()) request.first_step = now;
    if (request.stage == Stage::kQueue) {
      request.stage = sequence->generated.empty() ? Stage::kPrefill : Stage::kGeneration;
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
// Tells the tokens of the step.
StepReport EngineLoop::GatherRuns() {
  const size_t sequences = scheduler_.planned().size();
  runs_.assign(sequences, TokenRun());
  sample_of_.assign(sequences, -1);
  sampled_ids_.clear();
  for (const kernels::Sampled& sampled : sampled_) sampled_ids_.push_back(sampled.id);
  const absl::Span<const int32_t> owners = scheduler_.sampled_sequences();
  for (size_t i = 0; i < owners.size(); ++i) {
    sample_of_[owners[i]] = static_cast<int32_t>(i);
    if (sampled_[i].finite) {
      runs_[owners[i]] = TokenRun(&sampled_ids_[i], 1);
    } else {
      scheduler_.Distrust(*scheduler_.planned()[owners[i]]);
    }
  }
  const std::vector<int32_t>& begin = scheduler_.plan().query_begin;
  StepReport report;
  for (size_t s = 0; s < sequences; ++s) {
    const Sequence& sequence = *scheduler_.planned()[s];
    (sequence.prefilling() ? report.prompt_tokens : report.decode_tokens) +=
        begin[s + 1] - begin[s];
  }
  counted_.prompt_tokens += report.prompt_tokens;
  return report;
}

// What the step did for sequence `s` of the plan.
void EngineLoop::Deliver(const Progress& progress, size_t s, absl::Time now) {
  Sequence& sequence = *progress.sequence;
  ActiveRequest& request = *requests_.at(sequence.id);
  counted_.generation_tokens += progress.new_tokens;
  const int32_t sample = sample_of_[s];
  if (sample >= 0 && !sampled_[sample].finite) {
    counted_.nonfinite_logits += 1;
    End(request, base::Error(absl::StatusCode::kInternal, "NONFINITE_LOGITS",
                             absl::StrCat("the model computed NaN or infinity for token ",
                                          sequence.generated.size(), " of the answer")));
    return;
  }
  if (sample >= 0 && request.first_token == absl::InfinitePast()) {
    request.stage = Stage::kGeneration;
    request.first_token = now;
    request.last_token = now;
  }
  if (progress.new_tokens > 0) {
    request.last_token = now;
    const absl::Span<const int32_t> ids(sequence.generated);
    const absl::Span<const kernels::Sampled> sampled(sampled_);
    switch (request.sink->OnTokens(ids.last(progress.new_tokens),
                                   sampled.subspan(sample, progress.new_tokens))) {
      case SinkAnswer::kContinue:
        break;
      case SinkAnswer::kStop:
        sequence.finish = FinishReason::kStop;
        break;
      case SinkAnswer::kPause:
        Pause(request, now);
        break;
    }
  }
  if (sequence.finish != FinishReason::kNone) End(request, absl::OkStatus());
}

void EngineLoop::Pause(ActiveRequest& request, absl::Time now) {
  scheduler_.Pause(request.sequence);
  request.paused_since = now;
  next_deadline_ = std::min(next_deadline_, request.Expiry(options_.slow_client_timeout));
}

void EngineLoop::FailPlanned(const absl::Status& status) {
  scheduler_.Abandon();
  const std::vector<Sequence*> failed(scheduler_.planned().begin(), scheduler_.planned().end());
  for (const Sequence* sequence : failed) End(*requests_.at(sequence->id), status);
  if (absl::Status broken = health(); !broken.ok()) EndAll(broken);
}

void EngineLoop::End(ActiveRequest& request, const absl::Status& status) {
  const absl::Time now = clock_.Now();
  request.ended.request_stop();
  EndStage(request);
  scheduler_.Remove(request.sequence);
  if (!request.sequence.ahead()) CountEnd(request, status);
  const auto node = requests_.extract(request.sequence.id);
  Publish();
  const Outcome outcome = request.OutcomeAt(now);
  if (options_.observer.answered && !request.sequence.ahead()) {
    options_.observer.answered(status, outcome);
  }
  request.sink->OnEnd(status, outcome);
  hooks_.ended(request.sequence.priority);
}

// The time of a fetch, or of waiting for rows, that is under way. After the first step it is part
// of prefill or generation.
void EngineLoop::EndStage(ActiveRequest& request) {
  const absl::Duration time = clock_.Now() - request.stage_begin;
  if (request.stage == Stage::kFetch && !request.stepped()) {
    if (request.fetch == absl::ZeroDuration()) request.first_fetch = request.stage_begin;
    request.fetch += time;
  }
  if (request.stage == Stage::kRows && !request.stepped()) request.rows_wait += time;
  request.stage = Stage::kQueue;
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
    if (request->Expiry(options_.slow_client_timeout) <= now) expired.push_back(request.get());
  }
  for (ActiveRequest* request : expired) End(*request, Expired(*request, now));
  UpdateNextDeadline();
}

absl::Status EngineLoop::Expired(const ActiveRequest& request, absl::Time now) const {
  if (request.deadline > now) {
    return base::Error(absl::StatusCode::kResourceExhausted, "SLOW_CLIENT",
                       absl::StrCat("the client has not read its answer for ",
                                    absl::FormatDuration(now - request.paused_since),
                                    "; the request was aborted"));
  }
  const char* stage = Name(request.stage);
  return base::Error(absl::StatusCode::kDeadlineExceeded, absl::StrCat("DEADLINE_IN_", stage),
                     absl::StrCat("the deadline passed in stage ", stage, " after ",
                                  absl::FormatDuration(now - request.arrival)));
}

void EngineLoop::UpdateNextDeadline() {
  next_deadline_ = absl::InfiniteFuture();
  for (const auto& [id, request] : requests_) {
    next_deadline_ = std::min(next_deadline_, request->Expiry(options_.slow_client_timeout));
  }
}

void EngineLoop::Publish() {
  counted_.running = scheduler_.running();
  counted_.outside = counted_.ahead = counted_.blocks_ahead = 0;
  for (const auto& [id, request] : requests_) {
    if (request->sequence.ahead()) {
      counted_.ahead += 1;
      for (const Block& block : request->sequence.blocks) {
        counted_.blocks_ahead += pool_.HeldByOne(block.id());
      }
    } else if (request->outside()) {
      counted_.outside += 1;
    }
  }
  counted_.waiting = static_cast<int64_t>(requests_.size()) - counted_.ahead - scheduler_.running();
  counted_.blocks_used = pool_.used() - pool_.idle();
  counted_.blocks_cached = pool_.idle();
  counted_.blocks_total = pool_.total();
  const SchedulerCounts& counts = scheduler_.counts();
  counted_.preemptions = counts.preemptions;
  counted_.prefix_queries = counts.queried_tokens;
  counted_.prefix_hits = counts.hit_tokens;
  counted_.prefix_evicted = cache_.evicted_tokens();
  counted_.ahead_used = cache_.ahead_used_tokens();
  counted_.ahead_wasted = cache_.ahead_wasted_tokens() + counts.ahead_dropped_tokens;
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
