#include "services/gateway/answer/answer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "services/gateway/answer/receipts.h"

namespace tessera::gateway {
namespace {

// In front of an answer without a picture that nobody could encode.
constexpr char kAnswerWithout[] =
    "[A picture could not be looked at; this answer was given without it.] ";

// A client's gRPC cancels a call at its deadline, by a clock that is not ours; and it sends the
// time that it gives in two or three digits, rounded up.
constexpr absl::Duration kDeadlineSlack = absl::Milliseconds(5);
constexpr double kDeadlineRounding = 0.01;

// The deadline cannot be met, so nobody begins.
absl::Status TooLate(absl::Duration left, absl::Duration wait, const Pace::Forecast& pace) {
  const absl::Status late = base::Error(
      absl::StatusCode::kDeadlineExceeded, "DEADLINE",
      absl::StrCat("its first token would not come before ",
                   absl::FormatDuration(absl::Trunc(wait + pace.soonest, absl::Microseconds(1))),
                   ", ", absl::FormatDuration(absl::Trunc(left, absl::Microseconds(1))),
                   " are left; give the request more time, or ask again later"));
  return base::WithFact(late, "stage", "decode");
}

}  // namespace

void Answer::Start(const v1::GenerateRequest& request, const std::string& tenant) {
  deps_.running.Add(shared_from_this());
  absl::StatusOr<ParsedRequest> parsed =
      ParseRequest(request, tenant, deps_.options, deps_.clock.WallTime());
  if (!parsed.ok()) {
    End(parsed.status(), {});
    return;
  }
  {
    base::MutexLock lock(mutex_);
    if (ended_) return;  // its client left meanwhile
    parsed_ = *std::move(parsed);
    timeline_.OnPictures(parsed_.pictures);
    pictures_.Begin(parsed_);
  }
  work_ = EstimateWork(parsed_, deps_.resolver, deps_.context_tokens);
  asked_at_ = deps_.clock.Now();
  deps_.admission.Ask(
      ticket_, {.tenant = tenant, .tokens = work_.tokens, .deadline = request_.deadline},
      [self = shared_from_this()](const absl::Status& status) { self->OnTurn(status); });
  bool ended = false;
  {
    base::MutexLock lock(mutex_);
    ended = ended_;
  }
  if (ended) deps_.admission.Release(ticket_);  // it was cancelled before it had asked
}

void Answer::OnTurn(const absl::Status& status) {
  if (!status.ok()) return End(status, {});
  {
    base::MutexLock lock(mutex_);
    if (ended_) return;
  }
  admitted_ = deps_.clock.Now();
  stage_ = "encode";
  const size_t count = parsed_.pictures.size();
  if (count == 0) StartDecode();
  for (size_t i = 0; i < count; ++i) {
    const std::shared_ptr<EncodeCall> call = deps_.resolver.Resolve(
        parsed_.pictures[i], request_,
        {nullptr, [self = shared_from_this(), i](absl::StatusOr<ResolvedImage> image) {
           self->OnResolved(i, std::move(image));
         }});
    KeepCall(call);
    call->Proceed();
    call->Start();
  }
}

void Answer::OnResolved(size_t index, absl::StatusOr<ResolvedImage> image) {
  bool all = false;
  absl::Status status;
  {
    base::MutexLock lock(mutex_);
    status = pictures_.Resolve(index, std::move(image));
    all = status.ok() && pictures_.complete() && !ended_;
  }
  if (!status.ok()) {
    End(status, {});
    CancelCalls();
    return;
  }
  if (all) StartDecode();
}

void Answer::StartDecode() {
  v1::DecodeStart start;
  Placement placement{.affinity = parsed_.affinity};
  {
    base::MutexLock lock(mutex_);
    if (ended_ || (cancelled_ && !decoding_)) return;  // Cancel is about to end it
    start = pictures_.MakeStart(deps_.options.quality_warning);
    if (!std::exchange(decoding_, true)) calls_.clear();
  }
  if (const absl::Status status = ClimbLadder(start, placement); !status.ok()) {
    return End(status, {});
  }
  stage_ = "decode";
  const std::shared_ptr<DecodeCall> call =
      deps_.decode.Generate(std::make_shared<const v1::DecodeStart>(std::move(start)), request_,
                            placement, shared_from_this());
  bool cancel = false;
  {
    base::MutexLock lock(mutex_);
    if (ended_) return;
    decode_call_ = call;
    cancel = cancelled_ || !failure_.ok();
  }
  if (cancel) call->Cancel();
  call->Start();
}

absl::Status Answer::ClimbLadder(v1::DecodeStart& start, Placement& placement) {
  if (deps_.options.deadline_ladder.empty() || work_.too_long) return absl::OkStatus();
  const absl::Time now = deps_.clock.Now();
  int64_t prompt = work_.text_tokens;
  {
    base::MutexLock lock(mutex_);
    prompt += pictures_.rows_made();
  }
  const std::optional<Pace::Forecast> pace = deps_.pace.Predict(static_cast<uint32_t>(prompt), now);
  if (!pace) return absl::OkStatus();
  const DecodeWaits waits = deps_.decode.Waits(placement.affinity);
  const absl::Duration left = request_.deadline - now;
  const LadderPlan plan =
      Climb(deps_.options.deadline_ladder, {.left = left,
                                            .wait_first = waits.first,
                                            .wait_least = waits.least,
                                            .first_token = pace->first_token,
                                            .soonest = pace->soonest,
                                            .per_token = pace->per_token,
                                            .max_tokens = work_.max_tokens,
                                            .min_tokens = deps_.options.min_output_tokens});
  if (plan.refuse) return TooLate(left, plan.redirect ? waits.least : waits.first, *pace);
  shortened_to_ = plan.max_tokens < work_.max_tokens ? plan.max_tokens : 0;
  if (shortened_to_ > 0) start.mutable_options()->set_max_tokens(shortened_to_);
  if (plan.redirect) {
    placement.patience = std::max(absl::ZeroDuration(),
                                  left - pace->first_token - plan.max_tokens * pace->per_token);
  }
  return absl::OkStatus();
}

// Also in the midst of an answer: decode computes again what it gave up for others. Then vision has
// the record still, in memory or in the store, or nobody has.
void Answer::OnNeedRows(const v1::NeedRows& need) {
  std::vector<uint32_t> pictures;
  int number = 0;
  {
    base::MutexLock lock(mutex_);
    pictures = pictures_.Needed(need);
    number = try_;
  }
  for (const uint32_t picture : pictures) {
    const std::shared_ptr<EncodeCall> call = deps_.resolver.Encode(
        parsed_.pictures[picture], request_,
        {nullptr,
         [self = shared_from_this(), picture, number](absl::StatusOr<ResolvedImage> image) {
           self->OnRowsMade(picture, number, std::move(image));
         }});
    KeepCall(call);
    call->Proceed();
    call->Start();
  }
}

// What only a try before this one has asked for says nothing of this one: it may have the rows.
void Answer::OnRowsMade(uint32_t picture, int number, absl::StatusOr<ResolvedImage> image) {
  std::shared_ptr<DecodeCall> call;
  std::optional<uint32_t> asked;  // as decode calls it
  absl::Status status;
  {
    base::MutexLock lock(mutex_);
    asked = pictures_.NumberOf(picture);
    if (!asked || again_ || number != try_) return;
    call = decode_call_;
    bool anew = false;
    status = pictures_.ResolveAgain(picture, told_, std::move(image), anew);
    if (anew) {
      again_ = true;
    } else if (!status.ok() && failure_.ok()) {
      failure_ = status;
    }
  }
  if (!call) return;
  if (status.ok()) {
    call->RowsReady({*asked});
  } else {
    call->Cancel();
  }
}

bool Answer::OnPiece(v1::TextPiece piece) {
  if (first_piece_ == absl::InfinitePast() && !BeginTelling()) return true;
  const absl::Time now = deps_.clock.Now();
  timeline_.OnPiece(now);
  if (first_piece_ == absl::InfinitePast()) {
    first_piece_ = now;
    stage_ = "generation";
    deps_.admission.Began(ticket_);
    SayWhatIsLeftOut(piece);
    LetGoOfPictures();
  }
  LetGoOfRows();
  return sink_.OnPiece(std::move(piece));
}

// Decode has the rows: that somebody needs a picture's bytes again is not worth keeping them.
void Answer::LetGoOfPictures() {
  for (Picture& picture : parsed_.pictures) picture.bytes = nullptr;
  std::vector<std::shared_ptr<Call>> calls;  // they have the bytes, too; they go without the lock
  base::MutexLock lock(mutex_);
  calls.swap(calls_);
}

// In front of the first piece, where a picture was left out.
void Answer::SayWhatIsLeftOut(v1::TextPiece& piece) {
  base::MutexLock lock(mutex_);
  if (pictures_.losses().empty()) return;
  piece.set_text(absl::StrCat(kAnswerWithout, piece.text()));
}

void Answer::Resume() {
  std::shared_ptr<DecodeCall> call;
  {
    base::MutexLock lock(mutex_);
    call = decode_call_;
  }
  if (call) call->Resume();
}

absl::Time Answer::SinkDeadline(absl::Time now) const {
  return std::min(now + deps_.options.slow_client_timeout, request_.deadline);
}

void Answer::GiveUpSlowClient() {
  const bool late = deps_.clock.Now() >= request_.deadline;
  std::shared_ptr<DecodeCall> call;
  {
    base::MutexLock lock(mutex_);
    call = decode_call_;
    if (failure_.ok()) {
      failure_ = late ? absl::DeadlineExceededError("the client did not read its answer")
                      : base::Error(absl::StatusCode::kResourceExhausted, "SLOW_CLIENT",
                                    "the client does not read its answer: too much text is "
                                    "waiting");
    }
  }
  if (call) call->Cancel();
}

void Answer::OnDone(const absl::Status& status, const v1::DecodeEnd& end) {
  absl::Status failure;
  bool again = false;
  {
    base::MutexLock lock(mutex_);
    failure = failure_;
    decode_call_ = nullptr;
    ++try_;
    again = std::exchange(again_, false) && failure.ok() && !cancelled_;
  }
  if (again) return StartDecode();
  if (status.ok()) {
    deps_.pace.Observe(end, deps_.clock.Now());
    return End(status, Respond(end));
  }
  // Decode knows that it is full, not how soon it will be less so.
  const bool full = failure.ok() && base::ReasonOf(status) == "QUEUE_FULL";
  if (full) failure = base::WithRetry(status, deps_.admission.RetryAfter());
  End(failure.ok() ? status : failure, {});
  CancelCalls();
}

v1::GenerateResponse Answer::Respond(const v1::DecodeEnd& end) {
  const absl::Time now = deps_.clock.Now();
  GatewayTimes times;
  times.queue = absl::ToDoubleSeconds(admitted_ - asked_at_);
  times.total = absl::ToDoubleSeconds(now - arrival_);
  times.first_token = first_piece_ == absl::InfinitePast()
                          ? times.total
                          : absl::ToDoubleSeconds(first_piece_ - arrival_);
  base::MutexLock lock(mutex_);
  v1::GenerateResponse response =
      MakeResponse(pictures_.InOrder(end), pictures_.images(), times, by_);
  v1::Receipt& receipt = *response.mutable_receipt();
  for (const std::string& loss : pictures_.losses()) receipt.add_degraded(loss);
  if (shortened_to_ > 0 && end.finish_reason() == v1::FINISH_REASON_LENGTH) {
    deps_.metrics.OnDegraded(LadderStep::kOutput);
    receipt.add_degraded(absl::StrCat("output: ended after ", shortened_to_, " tokens instead of ",
                                      work_.max_tokens, " for its deadline"));
  }
  if (by_.redirected) {
    deps_.metrics.OnDegraded(LadderStep::kRedirect);
    receipt.add_degraded(absl::StrCat("redirect: ", by_.reason));
  }
  return response;
}

void Answer::LetGoOfRows() {
  std::vector<std::shared_ptr<const void>> rows;  // they go without the lock
  base::MutexLock lock(mutex_);
  rows = pictures_.TakeRows();
}

void Answer::KeepCall(std::shared_ptr<Call> call) {
  if (call == nullptr) return;
  bool cancel = false;
  {
    base::MutexLock lock(mutex_);
    cancel = ended_ || cancelled_;
    if (!cancel) calls_.push_back(call);
  }
  if (cancel) call->Cancel();
}

void Answer::CancelCalls() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    base::MutexLock lock(mutex_);
    calls.swap(calls_);
    if (decode_call_) calls.push_back(decode_call_);
  }
  for (const std::shared_ptr<Call>& call : calls) call->Cancel();
}

void Answer::Cancel() {
  const absl::Duration given = request_.deadline - arrival_;
  const bool late =
      deps_.clock.Now() + kDeadlineSlack + kDeadlineRounding * given >= request_.deadline;
  const absl::Status status = late ? absl::DeadlineExceededError("the client waits no longer")
                                   : absl::CancelledError("the client has gone");
  Stop(status, late);
}

void Answer::Stop(const absl::Status& status, bool told) {
  bool decoding = false;
  {
    base::MutexLock lock(mutex_);
    cancelled_ = true;
    decoding = decoding_;
    if (told && failure_.ok()) failure_ = status;
  }
  // Decode's own end follows; a picture that waits for an upload of others does not end by itself.
  if (!decoding) End(status, {});
  CancelCalls();
}

absl::Status Answer::Late(const absl::Status& status) const {
  const std::string reason = base::ReasonOf(status);
  absl::string_view inner = reason;
  const bool known = absl::ConsumePrefix(&inner, "DEADLINE_IN_");
  const std::string stage = known ? absl::AsciiStrToLower(inner) : std::string(stage_.load());
  absl::Status late = base::Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                                  absl::StrCat("the deadline passed in stage ", stage, " after ",
                                               absl::FormatDuration(deps_.clock.Now() - arrival_),
                                               "; give the request more time"));
  return base::WithFact(std::move(late), "stage", stage);
}

void Answer::End(const absl::Status& status, const v1::GenerateResponse& response) {
  bool computed = false;
  {
    base::MutexLock lock(mutex_);
    if (ended_) return;
    ended_ = true;
    computed = pictures_.computed();
  }
  LetGoOfRows();
  deps_.admission.Release(ticket_);
  timeline_.OnEnd(deps_.clock.Now(), status, stage_.load(), response, computed);
  const bool late = absl::IsDeadlineExceeded(status) && base::ReasonOf(status) != "DEADLINE";
  sink_.OnEnd(late ? Late(status) : status, response);
}

}  // namespace tessera::gateway
