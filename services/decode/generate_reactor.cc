#include "services/decode/generate_reactor.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/rpc/bad_message.h"
#include "common/rpc/request.h"
#include "common/rpc/status.h"
#include "services/decode/call_end.h"
#include "services/decode/translate.h"

namespace tessera::decode {
namespace {

constexpr size_t kWarmTextBytes = 1024;
constexpr size_t kLogprobBytes = 256;  // of one token's, about

absl::Status NoMoreRows() {
  return base::Error(absl::StatusCode::kFailedPrecondition, "ROWS_MISSING",
                     "rows are missing, and the client has closed its side of the call");
}

}  // namespace

GenerateReactor* GenerateReactor::Start(const CallDeps& deps,
                                        grpc::CallbackServerContext& context) {
  const absl::Time now = deps.clock.Now();
  std::shared_ptr<GenerateReactor> call(new GenerateReactor(deps, now, context));
  call->self_ = call;
  call->Read();
  return call.get();
}

GenerateReactor::GenerateReactor(const CallDeps& deps, absl::Time arrival,
                                 grpc::CallbackServerContext& wire)
    : deps_(deps),
      token_(*deps_.calls),
      arrival_(arrival),
      wire_(wire),
      context_(rpc::AcceptRequest(wire, arrival, deps.deadline_cap, deps.spans != nullptr)) {
  text_.reserve(kWarmTextBytes);
}

// ------------------------------------------------------------------ reads

void GenerateReactor::Read() {
  rpc::BeforeRead(request_);
  StartRead(&request_);
}

void GenerateReactor::OnReadDone(bool ok) {
  if (!ok && rpc::WasBadMessage(request_)) return Abort(rpc::FromGrpc(rpc::BadMessage()));
  if (!ok) return OnReadsClosed();
  switch (request_.kind_case()) {
    case v1::DecodeServiceGenerateRequest::kStart:
      OnStart(std::move(*request_.mutable_start()));
      break;
    case v1::DecodeServiceGenerateRequest::kRowsReady:
      OnRowsReady(request_.rows_ready());
      break;
    case v1::DecodeServiceGenerateRequest::KIND_NOT_SET:
      Abort(base::BadField("kind", "REQUEST_EMPTY", "a request is neither start nor rows_ready"));
      break;
  }
  {
    base::MutexLock lock(mutex_);
    if (finished_) return;
  }
  Read();
}

void GenerateReactor::OnStart(v1::DecodeStart start) {
  bool repeated = false;
  {
    base::MutexLock lock(mutex_);
    repeated = std::exchange(started_, true);
  }
  if (repeated) return Abort(base::BadField("start", "START_REPEATED", "a call has one start"));
  auto task = [self = shared_from_this(), start = std::move(start)]() mutable {
    self->Prepare(std::move(start));
  };
  if (!deps_.prompt_threads.TryPush(std::move(task))) {
    Abort(base::WithRetry(base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                                      "too many prompts wait to be read; ask again later"),
                          absl::Seconds(1)));
  }
}

void GenerateReactor::OnRowsReady(const v1::RowsReady& rows) {
  std::vector<int32_t> pictures;
  for (const uint32_t picture : rows.images()) pictures.push_back(static_cast<int32_t>(picture));
  SequenceId id = 0;
  {
    base::MutexLock lock(mutex_);
    if (awaited_pictures_.empty()) return;  // nobody waits for rows
    id = *id_;
    for (const int32_t picture : pictures) {
      awaited_pictures_.erase(
          std::remove(awaited_pictures_.begin(), awaited_pictures_.end(), picture),
          awaited_pictures_.end());
    }
  }
  deps_.engine.RowsReady(id, std::move(pictures));
}

void GenerateReactor::OnReadsClosed() {
  if (wire_.IsCancelled()) return Abort(ClientGone());  // OnCancel may come later
  bool started = false;
  {
    base::MutexLock lock(mutex_);
    reads_closed_ = true;
    started = started_;
    if (started && awaited_pictures_.empty()) return;
  }
  Abort(started ? NoMoreRows()
                : base::BadField("start", "REQUEST_EMPTY", "the call ended without a start"));
}

void GenerateReactor::OnCancel() { Abort(ClientGone()); }

// ------------------------------------------------------------------ prompt

void GenerateReactor::Prepare(v1::DecodeStart start) {
  {
    base::MutexLock lock(mutex_);
    if (!abort_.ok()) return;  // concluded already
  }
  if (absl::Status status = Submit(std::move(start)); !status.ok()) Conclude(std::move(status));
}

absl::Status GenerateReactor::Submit(v1::DecodeStart start) {
  ASSIGN_OR_RETURN(AskedFor asked, ParseStart(std::move(start), deps_.row_width));
  ASSIGN_OR_RETURN(PromptPlan plan, deps_.prompts.Build(asked.messages, asked.images));
  stream_ = std::make_unique<TextStream>(deps_.tokenizer, std::move(asked.stops));
  top_logprobs_ = asked.top_logprobs;
  Request request = ToRequest(std::move(asked), std::move(plan));
  request.name = ToName(context_);
  request.arrival = arrival_;
  request.deadline = context_.deadline;
  request.sink = shared_from_this();
  ASSIGN_OR_RETURN(const AcceptedRequest accepted, deps_.engine.Submit(std::move(request)));
  // The client may have gone before there was anything to cancel.
  absl::Status abort;
  {
    base::MutexLock lock(mutex_);
    abort = abort_;
  }
  if (!abort.ok()) deps_.engine.Cancel(accepted.id, std::move(abort));
  return absl::OkStatus();
}

// ------------------------------------------------------------------ engine

void GenerateReactor::OnAccepted(const AcceptedRequest& accepted) {
  base::MutexLock lock(mutex_);
  id_ = accepted.id;
  accepted_ = accepted;
  ScheduleDelivery();
}

void GenerateReactor::OnNeedRows(absl::Span<const int32_t> pictures) {
  bool closed = false;
  SequenceId id = 0;
  {
    base::MutexLock lock(mutex_);
    awaited_pictures_.assign(pictures.begin(), pictures.end());
    missing_pictures_ = awaited_pictures_;
    closed = reads_closed_;
    id = *id_;
    ScheduleDelivery();
  }
  if (closed) deps_.engine.Cancel(id, NoMoreRows());
}

SinkAnswer GenerateReactor::OnTokens(absl::Span<const int32_t> ids,
                                     absl::Span<const kernels::Sampled> sampled) {
  base::MutexLock lock(mutex_);
  const bool stopped = stream_->Push(ids, text_);
  if (top_logprobs_ >= 0) {
    for (const kernels::Sampled& token : sampled) {
      logprobs_.push_back(ToTokenLogprob(token, top_logprobs_, deps_.tokenizer));
    }
  }
  if (WaitingBytes() > 0) ScheduleDelivery();
  if (stopped) return SinkAnswer::kStop;
  if (WaitingBytes() <= deps_.sink_bytes) return SinkAnswer::kContinue;
  paused_ = true;
  ScheduleDelivery();
  return SinkAnswer::kPause;
}

size_t GenerateReactor::WaitingBytes() const {
  return text_.size() + logprobs_.size() * kLogprobBytes;
}

void GenerateReactor::OnEnd(const absl::Status& status, const Outcome& outcome) {
  const absl::Time now = deps_.clock.Now();
  base::MutexLock lock(mutex_);
  outcome_ = outcome;
  end_time_ = std::min(end_time_, now);
  if (status.ok()) {
    stream_->Finish(text_);
    end_ = ToDecodeEnd(outcome, stream_->stop());
  }
  status_ = status;
  ScheduleDelivery();
}

// ------------------------------------------------------------------ the end

// The client or the stream failed: the engine ends the answer, or nobody has begun it.
void GenerateReactor::Abort(absl::Status status) {
  std::optional<SequenceId> id;
  {
    base::MutexLock lock(mutex_);
    if (!abort_.ok()) return;
    abort_ = status;
    id = id_;
  }
  if (id.has_value()) return deps_.engine.Cancel(*id, std::move(status));
  Conclude(std::move(status));
}

// The call ends with `status` unless it has ended in another way.
void GenerateReactor::Conclude(absl::Status status) {
  const absl::Time now = deps_.clock.Now();
  base::MutexLock lock(mutex_);
  if (status_.has_value()) return;
  end_time_ = std::min(end_time_, now);
  status_ = std::move(status);
  ScheduleDelivery();
}

void GenerateReactor::OnDone() {
  {
    base::MutexLock lock(mutex_);
    const absl::Status status = status_.value_or(ClientGone());
    TellCallEnd(
        {"Generate", context_, arrival_, std::min(end_time_, deps_.clock.Now()), status, outcome_},
        deps_.spans);
  }
  self_.reset();
}

// ------------------------------------------------------------------ writes

void GenerateReactor::ScheduleDelivery() {
  if (scheduled_ || writing_ || finished_) return;
  scheduled_ = true;
  deps_.delivery.Schedule(shared_from_this());
}

void GenerateReactor::OnWriteDone(bool ok) {
  {
    base::MutexLock lock(mutex_);
    writing_ = false;
  }
  if (!ok) Abort(ClientGone());
  Deliver();
}

// Starts the next write, or the end, unless one is under way.
void GenerateReactor::Deliver() {
  grpc::Status status;
  bool has_response = false;
  bool finish = false;
  std::optional<SequenceId> resume;
  {
    base::MutexLock lock(mutex_);
    scheduled_ = false;
    if (writing_ || finished_) return;
    has_response = TakeResponse();
    if (paused_ && WaitingBytes() == 0) {
      paused_ = false;
      resume = id_;
    }
    finish = status_.has_value() && (!has_response || response_.has_end());
    if (!has_response && !finish) return;  // nothing waits, so nothing is paused
    writing_ = true;
    finished_ = finish;
    if (finish) status = rpc::ToGrpc(*status_);
  }
  if (resume.has_value()) deps_.engine.Resume(*resume);
  // Only who set writing_ gets here, and the reactor lives until Finish is through.
  if (!finish) {
    StartWrite(&response_);
  } else if (has_response) {
    StartWriteAndFinish(&response_, grpc::WriteOptions(), status);
  } else {
    Finish(status);
  }
}

// Moves what is next into response_; false when there is nothing, or nobody to read it.
bool GenerateReactor::TakeResponse() {
  response_.Clear();
  if (!abort_.ok()) return false;
  if (accepted_.has_value()) {
    response_.mutable_accepted()->set_prompt_tokens(accepted_->prompt_tokens);
    response_.mutable_accepted()->set_blocks(accepted_->blocks);
    accepted_.reset();
  } else if (!text_.empty() || !logprobs_.empty()) {
    v1::TextPiece& piece = *response_.mutable_piece();
    piece.set_text(text_);
    text_.clear();
    for (v1::TokenLogprob& token : logprobs_) *piece.add_logprobs() = std::move(token);
    logprobs_.clear();
  } else if (!missing_pictures_.empty()) {  // behind the text that came before
    for (const int32_t picture : missing_pictures_)
      response_.mutable_need_rows()->add_images(picture);
    missing_pictures_.clear();
  } else if (end_.has_value()) {
    *response_.mutable_end() = *std::move(end_);
    end_.reset();
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera::decode
