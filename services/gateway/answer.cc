#include "services/gateway/answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "services/gateway/receipts.h"

namespace tessera::gateway {
namespace {

// In the place of a picture that nobody could encode, to the model and to the client.
constexpr char kPictureLeftOut[] = "(a picture that could not be seen)";
constexpr char kAnswerWithout[] =
    "[A picture could not be looked at; this answer was given without it.] ";

// What vision says of a picture, with the picture's place in the request.
absl::Status AtPicture(const absl::Status& status, const std::string& field) {
  absl::Status placed = base::Annotate(status, field);
  return absl::IsInvalidArgument(placed) ? base::WithField(std::move(placed), field) : placed;
}

// Why rows cannot be had again in the midst of an answer. The client did nothing wrong, and whole
// new requests bring the bytes that are gone here.
absl::Status RowsLost(const absl::Status& status) {
  if (absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)) return status;
  return base::WithRetry(
      base::Error(absl::StatusCode::kUnavailable, "ROWS_MISSING",
                  absl::StrCat("the answer was put aside for others, and by then the rows of its "
                               "picture were gone (",
                               std::string(status.message()), "); ask again")),
      absl::Seconds(1));
}

}  // namespace

void Answer::Start(const v1::GenerateRequest& request, const std::string& tenant) {
  absl::StatusOr<ParsedRequest> parsed =
      ParseRequest(request, tenant, parts_.options, parts_.clock.Now());
  if (!parsed.ok()) {
    End(parsed.status(), {});
    return;
  }
  parsed_ = *std::move(parsed);
  timeline_.OnPictures(parsed_.pictures);
  stage_ = "encode";
  ResolveImages();
}

void Answer::ResolveImages() {
  const size_t count = parsed_.pictures.size();
  {
    base::MutexLock lock(mutex_);
    images_.resize(count);
    left_out_.assign(count, false);
    unresolved_ = count;
  }
  if (count == 0) StartDecode();
  for (size_t i = 0; i < count; ++i) {
    KeepCall(parts_.resolver.Resolve(
        parsed_.pictures[i], request_,
        [self = shared_from_this(), i](absl::StatusOr<ResolvedImage> image) {
          self->OnResolved(i, std::move(image));
        }));
  }
}

void Answer::OnResolved(size_t index, absl::StatusOr<ResolvedImage> image) {
  bool all = false;
  {
    base::MutexLock lock(mutex_);
    if (image.ok()) {
      images_[index] = *std::move(image);
    } else if (LeaveOut(index, image.status())) {
      image = ResolvedImage();
    }
    all = image.ok() && --unresolved_ == 0 && !ended_;
  }
  if (!image.ok()) {
    End(AtPicture(image.status(), parsed_.picture_fields[index]), {});
    CancelCalls();
    return;
  }
  if (all) StartDecode();
}

bool Answer::LeaveOut(size_t index, const absl::Status& status) {
  if (!parsed_.text_only_without_encoder || !absl::IsUnavailable(status)) return false;
  left_out_[index] = true;
  degraded_.push_back(
      absl::StrCat("picture ", index + 1, " was left out: ", std::string(status.message())));
  return true;
}

void Answer::WarnOfQuality(v1::DecodeStart& start) {
  std::vector<bool> warned(static_cast<size_t>(start.messages_size()), false);
  for (size_t i = 0; i < images_.size(); ++i) {
    const int turn = parsed_.picture_turns[i];
    if (left_out_[i]) continue;
    if (images_[i].ref.quality().verdict() != v1::QUALITY_VERDICT_WARN || warned[turn]) continue;
    warned[turn] = true;
    start.mutable_messages(turn)->add_parts()->set_text("\n" + parts_.options.quality_warning);
  }
}

v1::DecodeStart Answer::MakeStart() {
  v1::DecodeStart start = parsed_.start;
  asked_.clear();
  for (v1::DecodeMessage& message : *start.mutable_messages()) {
    for (v1::DecodePart& part : *message.mutable_parts()) {
      if (!part.has_image()) continue;
      const uint32_t picture = part.image();
      if (left_out_[picture]) {
        part.set_text(kPictureLeftOut);
        continue;
      }
      part.set_image(static_cast<uint32_t>(asked_.size()));
      asked_.push_back(picture);
      *start.add_images() = images_[picture].ref;
    }
  }
  WarnOfQuality(start);
  return start;
}

void Answer::StartDecode() {
  v1::DecodeStart start;
  int ask = 0;
  {
    base::MutexLock lock(mutex_);
    if (ended_) return;
    start = MakeStart();
    rows_made_.clear();
    ask = ++asks_;
    if (!std::exchange(decoding_, true)) calls_.clear();
  }
  stage_ = "decode";
  std::shared_ptr<DecodeCall> call =
      parts_.decode.Generate(start, request_, parsed_.affinity, shared_from_this());
  std::vector<uint32_t> made;
  bool cancel = false, resumed = false;
  {
    base::MutexLock lock(mutex_);
    if (ended_ || asks_ != ask) return;  // this ask is over
    decode_call_ = call;
    made.swap(rows_made_);
    resumed = std::exchange(resumed_, false);
    cancel = cancelled_ || again_ || !failure_.ok();
  }
  if (!made.empty()) call->RowsReady(made);
  if (resumed) call->Resume();
  if (cancel) call->Cancel();
}

// Also in the midst of an answer: decode computes again what it gave up for others. Then vision has
// the record still, in memory or in the store, or nobody has.
void Answer::OnNeedRows(const v1::NeedRows& need) {
  const bool late = first_piece_ != absl::InfinitePast();
  std::vector<uint32_t> pictures;
  {
    base::MutexLock lock(mutex_);
    pictures = asked_;
  }
  for (uint32_t asked : need.images()) {
    if (asked >= pictures.size()) continue;
    const uint32_t picture = pictures[asked];
    KeepCall(parts_.resolver.Encode(
        parsed_.pictures[picture], request_,
        [self = shared_from_this(), picture, late](absl::StatusOr<ResolvedImage> image) {
          self->OnRowsMade(picture, late, std::move(image));
        }));
  }
}

// Decode may have been asked anew meanwhile: its number of the picture is looked up now.
void Answer::OnRowsMade(uint32_t picture, bool late, absl::StatusOr<ResolvedImage> image) {
  std::shared_ptr<DecodeCall> call;
  uint32_t asked = 0;
  bool failed = false;
  {
    base::MutexLock lock(mutex_);
    const auto place = std::find(asked_.begin(), asked_.end(), picture);
    if (place == asked_.end() || again_) return;
    asked = static_cast<uint32_t>(place - asked_.begin());
    call = decode_call_;
    if (image.ok() && late) {
      images_[picture].rows = std::move(image->rows);  // what the picture cost is known
    } else if (image.ok()) {
      images_[picture] = *std::move(image);
    } else if (!late && LeaveOut(picture, image.status())) {
      failed = again_ = true;
    } else {
      failed = true;
      const absl::Status status = late ? RowsLost(image.status()) : image.status();
      if (failure_.ok()) failure_ = AtPicture(status, parsed_.picture_fields[picture]);
    }
    if (!call && !failed) rows_made_.push_back(asked);
  }
  if (!call) return;
  if (failed) {
    call->Cancel();
  } else {
    call->RowsReady({asked});
  }
}

bool Answer::OnPiece(v1::TextPiece piece) {
  const absl::Time now = parts_.clock.Now();
  timeline_.OnPiece(now);
  if (first_piece_ == absl::InfinitePast()) {
    first_piece_ = now;
    stage_ = "generation";
    SayWhatIsLeftOut(piece);
    // Decode has the rows: that somebody needs a picture's bytes again is not worth keeping them.
    for (Picture& picture : parsed_.pictures) picture.bytes = nullptr;
  }
  LetGoOfRows();
  return sink_.OnPiece(std::move(piece));
}

// In front of the first piece, where a picture was left out.
void Answer::SayWhatIsLeftOut(v1::TextPiece& piece) {
  base::MutexLock lock(mutex_);
  if (degraded_.empty()) return;
  piece.set_text(absl::StrCat(kAnswerWithout, piece.text()));
}

void Answer::Resume() {
  std::shared_ptr<DecodeCall> call;
  {
    base::MutexLock lock(mutex_);
    call = decode_call_;
    if (!call) resumed_ = true;
  }
  if (call) call->Resume();
}

absl::Time Answer::SinkDeadline(absl::Time now) const {
  return std::min(now + parts_.options.slow_client_timeout, request_.deadline);
}

void Answer::GiveUpSlowClient() {
  const bool late = parts_.clock.Now() >= request_.deadline;
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
  std::vector<ResolvedImage> images;
  std::vector<std::string> degraded;
  v1::DecodeEnd told = end;
  absl::Status failure;
  bool again = false;
  {
    base::MutexLock lock(mutex_);
    images = images_;
    failure = failure_;
    degraded = degraded_;
    decode_call_ = nullptr;
    again = std::exchange(again_, false) && failure.ok() && !cancelled_;
    told.clear_images();
    for (size_t i = 0; i < images.size(); ++i) told.add_images();
    for (int i = 0; i < end.images_size() && i < static_cast<int>(asked_.size()); ++i) {
      *told.mutable_images(static_cast<int>(asked_[i])) = end.images(i);
    }
  }
  if (again) return StartDecode();
  if (!status.ok()) {
    End(failure.ok() ? status : failure, {});
    CancelCalls();
    return;
  }
  const absl::Time now = parts_.clock.Now();
  GatewayTimes times;
  times.total = absl::ToDoubleSeconds(now - arrival_);
  times.first_token = first_piece_ == absl::InfinitePast()
                          ? times.total
                          : absl::ToDoubleSeconds(first_piece_ - arrival_);
  v1::GenerateResponse response = MakeResponse(told, images, times, by_);
  for (std::string& what : degraded) response.mutable_receipt()->add_degraded(std::move(what));
  End(absl::OkStatus(), response);
}

void Answer::LetGoOfRows() {
  std::vector<std::shared_ptr<const void>> rows;  // they go without the lock
  base::MutexLock lock(mutex_);
  for (ResolvedImage& image : images_) {
    if (image.rows) rows.push_back(std::move(image.rows));
  }
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
  bool decoding = false;
  {
    base::MutexLock lock(mutex_);
    cancelled_ = true;
    decoding = decoding_;
  }
  CancelCalls();
  // Decode's own end follows; a picture that waits for an upload of others does not end by itself.
  if (!decoding) End(absl::CancelledError("the client has gone"), {});
}

absl::Status Answer::Late(const absl::Status& status) const {
  const std::string reason = base::ReasonOf(status);
  absl::string_view inner = reason;
  const bool known = absl::ConsumePrefix(&inner, "DEADLINE_IN_");
  const std::string stage = known ? absl::AsciiStrToLower(inner) : std::string(stage_.load());
  absl::Status late = base::Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                                  absl::StrCat("the deadline passed in stage ", stage, " after ",
                                               absl::FormatDuration(parts_.clock.Now() - arrival_),
                                               "; give the request more time"));
  return base::WithFact(std::move(late), "stage", stage);
}

void Answer::End(const absl::Status& status, const v1::GenerateResponse& response) {
  bool computed = false;
  {
    base::MutexLock lock(mutex_);
    if (ended_) return;
    ended_ = true;
    for (const ResolvedImage& image : images_) {
      computed = computed || image.cache == v1::CACHE_TIER_COMPUTED;
    }
  }
  LetGoOfRows();
  timeline_.OnEnd(parts_.clock.Now(), status, stage_.load(), response, computed);
  sink_.OnEnd(absl::IsDeadlineExceeded(status) ? Late(status) : status, response);
}

}  // namespace tessera::gateway
