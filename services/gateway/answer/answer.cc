#include "services/gateway/answer/answer.h"

#include <algorithm>
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

Answer::Orders Answer::Take(const AnswerEvent& event) {
  AnswerStep step = Transition(std::move(life_), event);
  life_ = std::move(step.life);
  Orders orders{.actions = step.actions, .decode = nullptr, .pictures = {}};
  const auto has = [&](AnswerAction action) { return orders.actions.Has(action); };
  if (has(AnswerAction::kCancelDecode) || has(AnswerAction::kSayRows) ||
      has(AnswerAction::kResumeDecode)) {
    orders.decode = decode_call_;
  }
  if (has(AnswerAction::kDropPictures) || has(AnswerAction::kCancelPictures)) {
    orders.pictures.swap(picture_calls_);
  } else if (has(AnswerAction::kProceed)) {
    orders.pictures = picture_calls_;
  }
  return orders;
}

void Answer::Do(const Orders& orders, const v1::GenerateResponse& response) {
  const AnswerActions actions = orders.actions;
  if (actions.Has(AnswerAction::kRelease)) deps_.admission.Release(ticket_);
  if (actions.Has(AnswerAction::kEnd)) End(response);
  if (actions.Has(AnswerAction::kCancelPictures)) {
    for (const std::shared_ptr<EncodeCall>& call : orders.pictures) call->Cancel();
  }
  if (actions.Has(AnswerAction::kCancelDecode)) orders.decode->Cancel();
  if (actions.Has(AnswerAction::kResumeDecode)) orders.decode->Resume();
  if (actions.Has(AnswerAction::kAskTurn)) AskTurn();
  if (actions.Has(AnswerAction::kResolve)) ResolvePictures();
  if (actions.Has(AnswerAction::kProceed)) Proceed(orders.pictures);
  if (actions.Has(AnswerAction::kAskDecode)) AskDecode();
}

void Answer::Tell(const AnswerEvent& event) {
  Orders orders;
  {
    base::MutexLock lock(mutex_);
    orders = Take(event);
  }
  Do(orders);
}

void Answer::Start(v1::GenerateRequest request, const std::string& tenant) {
  deps_.running.Add(shared_from_this());
  absl::StatusOr<ParsedRequest> parsed =
      ParseRequest(std::move(request), tenant, deps_.options, deps_.clock.WallTime());
  AnswerEvent event{.kind = AnswerEventKind::kParsed, .status = parsed.status()};
  if (parsed.ok()) event.pictures = parsed->pictures.size();
  Orders orders;
  {
    base::MutexLock lock(mutex_);
    orders = Take(event);
    if (orders.actions.Has(AnswerAction::kAskTurn)) {
      parsed_ = *std::move(parsed);
      timeline_.OnPictures(parsed_.pictures);
      pictures_.Begin(parsed_);
    }
  }
  Do(orders);
}

void Answer::AskTurn() {
  work_ = EstimateWork(parsed_, deps_.resolver, deps_.context_tokens);
  asked_at_ = deps_.clock.Now();
  deps_.admission.Ask(
      ticket_,
      {.tenant = parsed_.start.tenant(), .tokens = work_.tokens, .deadline = request_.deadline},
      [self = shared_from_this()](const absl::Status& status) { self->OnTurn(status); });
  Tell({.kind = AnswerEventKind::kAsked});
}

void Answer::OnTurn(const absl::Status& status) {
  turn_at_ = deps_.clock.Now();
  Tell({.kind = AnswerEventKind::kTurn, .status = status});
}

void Answer::ResolvePictures() {
  const size_t count = parsed_.pictures.size();
  for (size_t i = 0; i < count; ++i) {
    const auto picture = static_cast<uint32_t>(i);
    Begin(deps_.resolver.Resolve(
        parsed_.pictures[i], request_,
        {.on_plan = [self = shared_from_this(), picture](
                        const v1::ImageRef& planned) { self->OnPlanned(picture, planned.rows()); },
         .on_done =
             [self = shared_from_this(), picture](absl::StatusOr<ResolvedImage> image) {
               self->OnResolved(picture, std::move(image));
             }}));
  }
}

void Answer::OnPlanned(uint32_t picture, uint32_t rows) {
  Orders orders;
  {
    base::MutexLock lock(mutex_);
    pictures_.Plan(picture, rows);
    orders = Take({.kind = AnswerEventKind::kPlanned, .picture = picture});
  }
  Do(orders);
}

// Nothing of what is planned is encoded yet, and nothing is where it cannot fit.
void Answer::Proceed(const std::vector<std::shared_ptr<EncodeCall>>& calls) {
  const absl::Status fits = CheckRows();
  if (!fits.ok()) return Tell({.kind = AnswerEventKind::kAbort, .status = fits});
  for (const std::shared_ptr<EncodeCall>& call : calls) call->Proceed();
}

absl::Status Answer::CheckRows() {
  int64_t rows = 0;
  {
    base::MutexLock lock(mutex_);
    rows = pictures_.rows();
  }
  constexpr int64_t kLeastText = 2;  // a token of the prompt, and one of the answer
  if (deps_.context_tokens == 0 || rows + kLeastText <= deps_.context_tokens) {
    return absl::OkStatus();
  }
  return base::BadField(
      "messages", "CONTEXT_TOO_LONG",
      absl::StrCat("the request's ", parsed_.pictures.size(), " pictures have ", rows,
                   " rows; the context has ", deps_.context_tokens,
                   " tokens, for prompt and answer together. Use fewer pictures"));
}

void Answer::OnResolved(uint32_t picture, absl::StatusOr<ResolvedImage> image) {
  Orders orders;
  {
    base::MutexLock lock(mutex_);
    orders = Take({.kind = AnswerEventKind::kResolved,
                   .status = pictures_.Verdict(picture, image.status()),
                   .picture = picture});
    if (orders.actions.Has(AnswerAction::kKeep)) pictures_.Keep(picture, std::move(image));
  }
  Do(orders);
}

void Answer::AskDecode() {
  std::shared_ptr<v1::DecodeStart> start;
  Placement placement{.affinity = parsed_.affinity};
  {
    base::MutexLock lock(mutex_);
    if (life_.state != AnswerState::kAsking) return;  // it has ended
    start = pictures_.MakeStart(deps_.options.quality_warning);
  }
  AnswerEvent event{.kind = AnswerEventKind::kCallMade, .status = ClimbLadder(*start, placement)};
  std::shared_ptr<DecodeCall> call;
  if (event.status.ok()) {
    call = deps_.decode.Generate(std::move(start), request_, placement, shared_from_this());
  }
  Orders orders;
  {
    base::MutexLock lock(mutex_);
    orders = Take(event);
    if (orders.actions.Has(AnswerAction::kStartDecode)) decode_call_ = call;
  }
  if (orders.actions.Has(AnswerAction::kStartDecode)) call->Start();
  Do(orders);
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
  uint32_t attempt = 0;
  {
    base::MutexLock lock(mutex_);
    if (!Take({.kind = AnswerEventKind::kRowsNeeded}).actions.Has(AnswerAction::kMakeRows)) return;
    pictures = pictures_.Needed(need);
    attempt = life_.attempt;
  }
  for (const uint32_t picture : pictures) {
    const std::shared_ptr<EncodeCall> call =
        deps_.resolver.Encode(parsed_.pictures[picture], request_,
                              {.on_plan = nullptr,
                               .on_done = [self = shared_from_this(), picture,
                                           attempt](absl::StatusOr<ResolvedImage> image) {
                                 self->OnRowsMade(picture, attempt, std::move(image));
                               }});
    call->Proceed();  // decode waits for it
    Begin(call);
  }
}

void Answer::OnRowsMade(uint32_t picture, uint32_t attempt, absl::StatusOr<ResolvedImage> image) {
  Orders orders;
  std::vector<uint32_t> rows;  // as decode calls the picture
  {
    base::MutexLock lock(mutex_);
    const bool late = life_.state == AnswerState::kTelling;
    orders = Take({.kind = AnswerEventKind::kRowsMade,
                   .status = pictures_.RowsVerdict(picture, image.status(), late),
                   .attempt = attempt,
                   .spare = pictures_.IsSpare(image.status())});
    if (orders.actions.Has(AnswerAction::kSayRows)) rows = {pictures_.NumberOf(picture)};
    const bool keep = orders.actions.Has(AnswerAction::kKeep);
    if (keep && late) pictures_.KeepRows(picture, std::move(image->rows));
    if (keep && !late) pictures_.Keep(picture, std::move(image));
  }
  if (!rows.empty()) orders.decode->RowsReady(rows);
  Do(orders);
}

void Answer::Begin(const std::shared_ptr<EncodeCall>& call) {
  {
    base::MutexLock lock(mutex_);
    if (!life_.wants_pictures()) return;
    picture_calls_.push_back(call);
  }
  call->Start();
}

bool Answer::OnPiece(v1::TextPiece piece) {
  Orders orders;
  std::vector<std::shared_ptr<const void>> rows;  // they go without the lock, as the calls do
  bool incomplete = false;
  {
    base::MutexLock lock(mutex_);
    orders = Take({.kind = AnswerEventKind::kPiece});
    if (!orders.actions.Has(AnswerAction::kTell)) return true;
    rows = pictures_.TakeRows();
    incomplete = !pictures_.losses().empty();
  }
  const absl::Time now = deps_.clock.Now();
  timeline_.OnPiece(now);
  if (orders.actions.Has(AnswerAction::kBegin)) {
    first_piece_ = now;
    deps_.admission.Began(ticket_);
    if (incomplete) piece.set_text(absl::StrCat(kAnswerWithout, piece.text()));
    // Decode has the rows: that somebody needs a picture's bytes again is not worth keeping them.
    // Calls have them, too.
    for (Picture& picture : parsed_.pictures) picture.bytes = nullptr;
    orders.pictures.clear();
  }
  rows.clear();
  return sink_.OnPiece(std::move(piece));
}

absl::Time Answer::SinkDeadline(absl::Time now) const {
  return std::min(now + deps_.options.slow_client_timeout, request_.deadline);
}

void Answer::GiveUpSlowClient() {
  const bool late = deps_.clock.Now() >= request_.deadline;
  Tell({.kind = AnswerEventKind::kSlow,
        .status = late ? absl::DeadlineExceededError("the client did not read its answer")
                       : base::Error(absl::StatusCode::kResourceExhausted, "SLOW_CLIENT",
                                     "the client does not read its answer: too much text is "
                                     "waiting")});
}

void Answer::OnDone(const absl::Status& status, const v1::DecodeEnd& end) {
  AnswerEvent event{.kind = AnswerEventKind::kDone, .status = status};
  // Decode knows that it is full, not how soon it will be less so.
  if (!status.ok() && base::ReasonOf(status) == "QUEUE_FULL") {
    event.status = base::WithRetry(status, deps_.admission.RetryAfter());
  }
  std::shared_ptr<DecodeCall> call;  // goes without the lock
  Orders orders;
  bool good = false;
  {
    base::MutexLock lock(mutex_);
    call = std::move(decode_call_);
    orders = Take(event);
    good = orders.actions.Has(AnswerAction::kEnd) && life_.cause.ok();
  }
  if (!good) return Do(orders);
  deps_.pace.Observe(end, deps_.clock.Now());
  Do(orders, Respond(end));
}

v1::GenerateResponse Answer::Respond(const v1::DecodeEnd& end) {
  const absl::Time now = deps_.clock.Now();
  GatewayTimes times;
  times.queue = absl::ToDoubleSeconds(turn_at_ - asked_at_);
  times.total = absl::ToDoubleSeconds(now - arrival_);
  times.first_token = first_piece_ == absl::InfinitePast()
                          ? times.total
                          : absl::ToDoubleSeconds(first_piece_ - arrival_);
  base::MutexLock lock(mutex_);
  v1::GenerateResponse response =
      MakeResponse(pictures_.InOrder(end), pictures_.images(), times, route_);
  v1::Receipt& receipt = *response.mutable_receipt();
  for (const std::string& loss : pictures_.losses()) receipt.add_degraded(loss);
  if (shortened_to_ > 0 && end.finish_reason() == v1::FINISH_REASON_LENGTH) {
    deps_.metrics.OnDegraded(LadderStep::kOutput);
    receipt.add_degraded(absl::StrCat("output: ended after ", shortened_to_, " tokens instead of ",
                                      work_.max_tokens, " for its deadline"));
  }
  if (route_.redirected) {
    deps_.metrics.OnDegraded(LadderStep::kRedirect);
    receipt.add_degraded(absl::StrCat("redirect: ", route_.reason));
  }
  return response;
}

void Answer::Cancel() {
  const absl::Duration given = request_.deadline - arrival_;
  const bool late =
      deps_.clock.Now() + kDeadlineSlack + kDeadlineRounding * given >= request_.deadline;
  Tell({.kind = late ? AnswerEventKind::kAbort : AnswerEventKind::kCancel,
        .status = late ? absl::DeadlineExceededError("the client waits no longer")
                       : absl::CancelledError("the client has gone")});
}

absl::Status Answer::Late(const absl::Status& status, absl::string_view reached) const {
  const std::string reason = base::ReasonOf(status);
  absl::string_view inner = reason;
  const bool known = absl::ConsumePrefix(&inner, "DEADLINE_IN_");
  const std::string stage = known ? absl::AsciiStrToLower(inner) : std::string(reached);
  absl::Status late = base::Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                                  absl::StrCat("the deadline passed in stage ", stage, " after ",
                                               absl::FormatDuration(deps_.clock.Now() - arrival_),
                                               "; give the request more time"));
  return base::WithFact(std::move(late), "stage", stage);
}

void Answer::End(const v1::GenerateResponse& response) {
  std::vector<std::shared_ptr<const void>> rows;
  absl::Status status;
  const char* stage = nullptr;
  bool computed = false;
  {
    base::MutexLock lock(mutex_);
    rows = pictures_.TakeRows();
    status = life_.cause;
    stage = NameOf(life_.stage);
    computed = pictures_.computed();
  }
  rows.clear();
  timeline_.OnEnd(deps_.clock.Now(), status, stage, response, computed);
  const bool late = absl::IsDeadlineExceeded(status) && base::ReasonOf(status) != "DEADLINE";
  sink_.OnEnd(late ? Late(status, stage) : status, response);
}

}  // namespace tessera::gateway
