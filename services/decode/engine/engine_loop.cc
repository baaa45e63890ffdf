#include "services/decode/engine/engine_loop.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"

namespace tessera::decode {

EngineLoop::EngineLoop(const EngineOptions& options, EngineDevice device, base::Clock& clock,
                       Hooks hooks)
    : options_(options),
      device_(std::move(device), options.vocabulary, options.scheduler.max_sequences),
      clock_(clock),
      hooks_(std::move(hooks)),
      pool_(options.blocks, options.block_size),
      cache_(options.prefix_cache_blocks, pool_),
      scheduler_(options.scheduler, pool_, cache_) {
  const size_t sequences = options_.scheduler.max_sequences;
  sampled_ids_.reserve(sequences);
  runs_.reserve(sequences);
  sample_of_.reserve(sequences);
  Publish();
}

EngineLoop::~EngineLoop() { CHECK(requests_.empty()); }

// ------------------------------------------------------------------ messages

void EngineLoop::Handle(EngineMessage message) {
  std::visit([this](auto&& m) { On(std::move(m)); }, std::move(message));
}

void EngineLoop::On(NewRequest message) {
  ActiveRequest& request = *message.request;
  next_deadline_ = std::min(next_deadline_, request.deadline);
  requests_.emplace(request.sequence.id, std::move(message.request));
  if (!closed_.ok()) return End(request, closed_);
  if (absl::Status status = health(); !status.ok()) return End(request, status);
  scheduler_.Open(request.sequence);
  request.rows.NoteShared();
  Proceed(request);
}

void EngineLoop::On(CancelRequest message) {
  const auto it = requests_.find(message.id);
  if (it != requests_.end()) End(*it->second, message.status);
}

void EngineLoop::On(ResumeRequest message) {
  const auto it = requests_.find(message.id);
  if (it == requests_.end() || !it->second->sequence.paused) return;
  ActiveRequest& request = *it->second;
  scheduler_.Resume(request.sequence);
  request.paused_since = absl::InfiniteFuture();
  const bool fetching = request.stage == Stage::kFetch || request.stage == Stage::kRows;
  if (request.sequence.state == Sequence::State::kOutside && !fetching) Proceed(request);
}

void EngineLoop::On(CancelAhead message) {
  std::vector<ActiveRequest*> ahead;
  for (const auto& [id, request] : requests_) {
    if (request->sequence.ahead()) ahead.push_back(request.get());
  }
  for (ActiveRequest* request : ahead) End(*request, message.status);
}

void EngineLoop::On(CancelAll message) {
  closed_ = std::move(message.status);
  EndAll(closed_);
}

// ------------------------------------------------------------------ rows

// A sequence outside the scheduler: into the queue when every row that it needs is here, else off
// to fetch them.
void EngineLoop::Proceed(ActiveRequest& request) {
  Sequence& sequence = request.sequence;
  request.stage = Stage::kQueue;
  if (sequence.finish != FinishReason::kNone) return End(request, absl::OkStatus());
  if (sequence.paused) return;  // Resume brings it back
  if (sequence.LacksRows()) return Fetch(request);
  if (absl::Status status = scheduler_.Enqueue(sequence); !status.ok()) End(request, status);
}

// Reads the records whose rows are needed and not here.
void EngineLoop::Fetch(ActiveRequest& request) {
  FetchJob job;
  job.id = request.sequence.id;
  job.asker = {request.name, request.deadline, request.ended.get_token()};
  job.pictures = request.rows.Wanted(options_.row_width);
  for (const WantedRows& wanted : job.pictures) {
    job.bytes += static_cast<size_t>(wanted.record.rows * options_.row_width) * sizeof(float);
  }
  request.BeginWait(Stage::kFetch, clock_.Now());
  hooks_.fetch(std::move(job));
}

void EngineLoop::On(FetchResult message) {
  const auto it = requests_.find(message.id);
  if (it == requests_.end()) return;  // ended meanwhile
  ActiveRequest& request = *it->second;
  // What is too late is not read, and nobody is to make it.
  const absl::Time now = clock_.Now();
  if (request.deadline <= now) return End(request, request.ExpiredAt(now));
  request.EndWait(now);
  for (WantedRows& read : message.pictures) {
    const store::RecordPtr record = read.found.record;
    if (absl::Status status = request.rows.Take(std::move(read)); !status.ok()) {
      return End(request, status);
    }
    if (record != nullptr) counts_.fetched_bytes += static_cast<int64_t>(record->data.size());
  }
  if (request.rows.awaits()) return AskForRows(request);
  // Its pinned blocks may have gone meanwhile, and rows that it did not need then are needed now.
  Proceed(request);
}

void EngineLoop::AskForRows(ActiveRequest& request) {
  if (request.sequence.ahead()) {
    request.sequence.finish = FinishReason::kDropped;
    return End(request, absl::OkStatus());
  }
  request.BeginWait(Stage::kRows, clock_.Now());
  if (absl::Status status = request.rows.BeginRound(); !status.ok()) return End(request, status);
  request.sink->OnNeedRows(request.rows.awaited());
}

void EngineLoop::On(RowsExist message) {
  const auto it = requests_.find(message.id);
  if (it == requests_.end() || it->second->stage != Stage::kRows) return;
  ActiveRequest& request = *it->second;
  request.rows.Made(message.pictures);
  if (request.rows.awaits()) return;
  request.EndWait(clock_.Now());
  Proceed(request);
}

// ------------------------------------------------------------------ a step

bool EngineLoop::Step() {
  const absl::Time begin = clock_.Now();
  EndExpired(begin);
  const BatchPlan& plan = scheduler_.Next();
  // By id: when the device fails, all of them end in this step.
  expelled_.clear();
  for (const Sequence* sequence : scheduler_.expelled()) expelled_.push_back(sequence->id);
  if (plan.sequences() > 0) {
    MarkStarted(begin);
    if (absl::Status status = device_.Compute(plan, scheduler_.sampling()); status.ok()) {
      StepReport report = GatherRuns();
      const absl::Time end = clock_.Now();
      report.duration = end - begin;
      counts_.steps += 1;
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

// One run of tokens per sequence of the plan: what was sampled, nothing where the prompt goes on.
// Tells the tokens of the step.
StepReport EngineLoop::GatherRuns() {
  const size_t sequences = scheduler_.planned().size();
  runs_.assign(sequences, TokenRun());
  sample_of_.assign(sequences, -1);
  sampled_ids_.clear();
  const absl::Span<const kernels::Sampled> chosen = device_.sampled();
  for (const kernels::Sampled& sampled : chosen) sampled_ids_.push_back(sampled.id);
  const absl::Span<const int32_t> owners = scheduler_.sampled_sequences();
  for (size_t i = 0; i < owners.size(); ++i) {
    sample_of_[owners[i]] = static_cast<int32_t>(i);
    if (chosen[i].finite) {
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
  counts_.prompt_tokens += report.prompt_tokens;
  return report;
}

// What the step did for sequence `s` of the plan.
void EngineLoop::Deliver(const Progress& progress, size_t s, absl::Time now) {
  Sequence& sequence = *progress.sequence;
  ActiveRequest& request = *requests_.at(sequence.id);
  counts_.generation_tokens += progress.new_tokens;
  const int32_t sample = sample_of_[s];
  if (sample >= 0 && !device_.sampled()[sample].finite) {
    counts_.nonfinite_logits += 1;
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
    switch (request.sink->OnTokens(ids.last(progress.new_tokens),
                                   device_.sampled().subspan(sample, progress.new_tokens))) {
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

// ------------------------------------------------------------------ the end

void EngineLoop::End(ActiveRequest& request, const absl::Status& status) {
  const absl::Time now = clock_.Now();
  request.ended.request_stop();
  request.EndWait(clock_.Now());
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

void EngineLoop::CountEnd(const ActiveRequest& request, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      (request.sequence.finish == FinishReason::kStop ? counts_.finished_stop
                                                      : counts_.finished_length) += 1;
      return;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      counts_.finished_abort += 1;
      return;
    default:
      counts_.finished_error += 1;
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
  for (ActiveRequest* request : expired) End(*request, request->ExpiredAt(now));
  UpdateNextDeadline();
}

void EngineLoop::UpdateNextDeadline() {
  next_deadline_ = absl::InfiniteFuture();
  for (const auto& [id, request] : requests_) {
    next_deadline_ = std::min(next_deadline_, request->Expiry(options_.slow_client_timeout));
  }
}

// ------------------------------------------------------------------ numbers

void EngineLoop::Publish() {
  counts_.running = scheduler_.running();
  counts_.outside = counts_.ahead = counts_.blocks_ahead = 0;
  for (const auto& [id, request] : requests_) {
    if (request->sequence.ahead()) {
      counts_.ahead += 1;
      for (const Block& block : request->sequence.blocks) {
        counts_.blocks_ahead += pool_.HeldByOne(block.id());
      }
    } else if (request->outside()) {
      counts_.outside += 1;
    }
  }
  counts_.waiting = static_cast<int64_t>(requests_.size()) - counts_.ahead - scheduler_.running();
  counts_.blocks_used = pool_.used() - pool_.idle();
  counts_.blocks_cached = pool_.idle();
  counts_.blocks_total = pool_.total();
  const SchedulerCounts& counts = scheduler_.counts();
  counts_.preemptions = counts.preemptions;
  counts_.prefix_queries = counts.queried_tokens;
  counts_.prefix_hits = counts.hit_tokens;
  counts_.prefix_evicted = cache_.evicted_tokens();
  counts_.ahead_used = cache_.ahead_used_tokens();
  counts_.ahead_wasted = cache_.ahead_wasted_tokens() + counts.ahead_dropped_tokens;
  base::MutexLock lock(mutex_);
  published_counts_ = counts_;
}

EngineStats EngineLoop::stats() const {
  base::MutexLock lock(mutex_);
  return published_counts_;
}

}  // namespace tessera::decode
