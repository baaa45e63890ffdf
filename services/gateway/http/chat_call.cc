#include "services/gateway/http/chat_call.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "services/gateway/api/pieces.h"
#include "services/gateway/http/http_error.h"

namespace tessera::gateway::http {
namespace {

constexpr size_t kIdBytes = 12;

absl::Status TooManyBytes(size_t limit) {
  return base::WithFact(
      base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_TOO_LARGE",
                  absl::StrCat("the fetched pictures of one request have more than ", limit,
                               " bytes together (--max_message_bytes)")),
      "limit", "bytes");
}

}  // namespace

absl::StatusOr<std::shared_ptr<ChatCall>> ChatCall::Enter(const ChatDeps& deps,
                                                          rpc::RequestContext request,
                                                          absl::Time arrival, std::string tenant,
                                                          std::function<void()> wake) {
  absl::StatusOr<Admission::Place> place = deps.answer.admission.Enter(tenant);
  if (!place.ok()) {
    deps.answer.metrics.OnEnd({RequestKind::kChat, request, arrival, arrival}, place.status(),
                              "admission");
    return place.status();
  }
  const std::shared_ptr<ChatCall> call(new ChatCall(
      deps, {std::move(request), arrival, std::move(tenant), *std::move(place)}, std::move(wake)));
  deps.answer.running.Add(call);
  return call;
}

ChatCall::~ChatCall() { deps_.answer.running.Remove(*this); }

ChatCall::ChatCall(const ChatDeps& deps, AdmittedCall call, std::function<void()> wake)
    : token_(deps.tracker),
      deps_(deps),
      context_(std::move(call.request)),
      arrival_(call.arrival),
      tenant_(std::move(call.tenant)),
      wake_(std::move(wake)),
      full_(deps.timers),
      place_(std::move(call.place)) {}

void ChatCall::Start(std::string body, ByteBudget::Hold held) {
  {
    base::MutexLock lock(mutex_);
    held_ = std::move(held);
  }
  absl::StatusOr<ChatRequest> request = absl::InternalError("the body could not be read");
  try {
    request = ParseChatRequest(body, deps_.limits);
  } catch (const std::exception& e) {  // of the JSON library, for want of memory
    base::Log(base::LogLevel::kError, absl::StrCat("reading a chat request: ", e.what()));
  }
  std::string().swap(body);
  if (!request.ok()) return Refuse(request.status());
  request_ = *std::move(request);
  {
    base::MutexLock lock(mutex_);
    stream_ = request_.stream;
  }
  const size_t most = static_cast<size_t>(deps_.options.max_images);
  if (request_.remote.size() > most) {  // before the first is fetched
    return Refuse(base::BadField(
        "messages", "TOO_MANY_IMAGES",
        absl::StrCat("more than ", most, " pictures in one request (--max_images)")));
  }
  ChatHeading heading;
  heading.id = absl::StrCat("chatcmpl-", base::ToHex(base::RandomBytes(kIdBytes)));
  heading.created = absl::ToUnixSeconds(deps_.answer.clock.WallTime());
  heading.model = deps_.options.model_name;
  heading.logprobs = request_.request.options().has_top_logprobs();
  heading.include_usage = request_.include_usage;
  heading.receipt = request_.receipt;
  {
    base::MutexLock lock(mutex_);
    format_.emplace(std::move(heading));
  }
  Fetch(0, 0);
}

void ChatCall::Fetch(size_t index, size_t bytes) {
  if (index == request_.remote.size()) return StartAnswer();
  {
    base::MutexLock lock(mutex_);
    if (end_) return;
  }
  deps_.fetcher->Fetch(
      request_.remote[index].url, tenant_,
      [self = shared_from_this(), index, bytes](absl::StatusOr<std::string> picture) {
        self->OnFetched(index, bytes, std::move(picture));
      });
}

void ChatCall::OnFetched(size_t index, size_t bytes, absl::StatusOr<std::string> picture) {
  const RemoteImage& remote = request_.remote[index];
  bool gone = false;
  absl::Status room;
  {
    base::MutexLock lock(mutex_);
    if (end_) return;
    gone = gone_;
    if (picture.ok()) room = held_.Grow(held_.bytes() + picture->size());
  }
  if (gone) return Refuse(absl::CancelledError("the client has gone"));
  if (!room.ok()) return Refuse(room);
  if (deps_.answer.clock.Now() >= context_.deadline) {
    return Refuse(base::Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                              "the deadline passed while pictures were fetched"));
  }
  if (picture.ok()) bytes += picture->size();
  if (bytes > deps_.limits.max_bytes) picture = TooManyBytes(deps_.limits.max_bytes);
  if (!picture.ok()) {
    const std::string field =
        absl::StrCat("messages[", remote.message, "].parts[", remote.part, "].image");
    return Refuse(base::WithField(base::Annotate(picture.status(), field), field));
  }
  request_.request.mutable_messages(remote.message)
      ->mutable_parts(remote.part)
      ->mutable_image()
      ->mutable_inline_data()
      ->set_data(*std::move(picture));
  Fetch(index + 1, bytes);
}

void ChatCall::StartAnswer() {
  const RequestKind kind = request_.stream ? RequestKind::kChatStream : RequestKind::kChat;
  const auto answer = std::make_shared<Answer>(deps_.answer, context_, arrival_, *this, kind);
  bool gone = false;
  {
    base::MutexLock lock(mutex_);
    if (end_) return;
    gone = gone_;
    if (!gone) {
      answer_ = answer;
      self_ = shared_from_this();
    }
  }
  if (gone) return Refuse(absl::CancelledError("the client has gone"));
  answer->Start(std::move(request_.request), tenant_);
}

void ChatCall::Refuse(const absl::Status& status) {
  bool stream = false;
  {
    base::MutexLock lock(mutex_);
    if (end_ || answer_) return;
    held_.Reset();
    end_ = status;
    stream = stream_;
  }
  const RequestKind kind = stream ? RequestKind::kChatStream : RequestKind::kChat;
  deps_.answer.metrics.OnEnd({kind, context_, arrival_, deps_.answer.clock.Now()}, status,
                             "admission");
  wake_();
}

void ChatCall::Abort(const absl::Status& status) {
  Refuse(status);
  std::shared_ptr<Answer> answer;
  {
    base::MutexLock lock(mutex_);
    answer = answer_;
  }
  if (answer) answer->Abort(status);
}

bool ChatCall::OnPiece(v1::TextPiece piece) {
  bool full = false, wake = false;
  {
    base::MutexLock lock(mutex_);
    held_.Reset();
    Append(std::move(piece), waiting_);
    if (!stream_) return true;  // max_tokens bounds it
    wake = !std::exchange(awake_, true);
    full = PieceBytes(waiting_) > deps_.options.sink_bytes;
    if (full) {
      full_.Fill(answer_->SinkDeadline(deps_.answer.clock.Now()), [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->GiveUp();
      });
    }
  }
  if (wake) wake_();
  return !full;
}

void ChatCall::OnEnd(const absl::Status& status, const v1::GenerateResponse& response) {
  std::shared_ptr<Answer> answer;  // both go without the lock
  std::shared_ptr<ChatCall> self;
  {
    base::MutexLock lock(mutex_);
    answer = std::move(answer_);
    self = std::move(self_);
    held_.Reset();
    end_ = status;
    if (!status.ok()) waiting_.Clear();
    end_response_ = response;
  }
  wake_();
}

void ChatCall::GiveUp() {
  std::shared_ptr<Answer> answer;
  {
    base::MutexLock lock(mutex_);
    if (!full_.Expire()) return;
    given_up_ = true;
    answer = answer_;
  }
  if (answer) answer->GiveUpSlowClient();
}

void ChatCall::Gone() {
  std::shared_ptr<Answer> answer;
  {
    base::MutexLock lock(mutex_);
    gone_ = true;
    answer = answer_;
    full_.Empty();
  }
  if (answer) answer->Cancel();
}

ChatCall::State ChatCall::GetState() {
  base::MutexLock lock(mutex_);
  if (!end_) return State::kRunning;
  return given_up_ ? State::kAbandoned : State::kEnded;
}

bool ChatCall::stream() {
  base::MutexLock lock(mutex_);
  return stream_;
}

ChatCall::Output ChatCall::Take() {
  Output output;
  std::shared_ptr<Answer> resumed;
  {
    base::MutexLock lock(mutex_);
    awake_ = false;
    if (stream_ && PieceBytes(waiting_) > 0) {
      output.begins = !std::exchange(begun_, true);
      output.bytes = absl::StrCat(output.begins ? format_->Begin() : "", format_->Piece(waiting_));
      waiting_.Clear();
    }
    if (end_) {
      TakeEnd(output);
      if (!full_.was_full() && !gone_) place_.Reset();
    }
    if (full_.Empty()) resumed = answer_;
  }
  if (resumed) resumed->Resume();
  return output;
}

void ChatCall::TakeEnd(Output& output) {
  if (!end_->ok() && !begun_) {
    output.whole = ErrorResponse(ToHttpError(*end_));
  } else if (!stream_) {
    output.whole.emplace();
    output.whole->body = format_->Whole(waiting_, end_response_);
  } else if (!end_->ok()) {
    output.ends = true;
    absl::StrAppend(&output.bytes, ChatResponse::Failure(*end_));
  } else {
    output.ends = true;
    if (!std::exchange(begun_, true)) {
      output.begins = true;
      output.bytes = format_->Begin();
    }
    absl::StrAppend(&output.bytes, format_->End(end_response_));
  }
}

}  // namespace tessera::gateway::http
