#include "services/gateway/api/stream_reactor.h"

#include <utility>

#include "common/rpc/status.h"
#include "services/gateway/api/pieces.h"

namespace tessera::gateway {

StreamReactor* StreamReactor::Start(const ReactorDeps& deps, const AnswerDeps& answer_deps,
                                    AdmittedCall call, grpc::CallbackServerContext& context,
                                    v1::GenerateRequest message) {
  const std::shared_ptr<StreamReactor> reactor(new StreamReactor(deps, call, context));
  reactor->self_ = reactor;
  auto answer = std::make_shared<Answer>(answer_deps, std::move(call.request), call.arrival,
                                         *reactor, RequestKind::kGenerateStream);
  {
    base::MutexLock lock(reactor->mutex_);
    reactor->answer_ = answer;
  }
  answer->Start(std::move(message), call.tenant);
  return reactor.get();
}

bool StreamReactor::OnPiece(v1::TextPiece piece) {
  grpc::Status status;
  Step step = Step::kNothing;
  bool full = false;
  {
    base::MutexLock lock(mutex_);
    Append(std::move(piece), unsent_);
    step = TakeStep(status);
    full = PieceBytes(unsent_) > deps_.options.sink_bytes;
    if (full) {
      full_sink_.Fill(answer_->SinkDeadline(deps_.clock.Now()), [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->GiveUp();
      });
    }
  }
  Do(step, status);
  return !full;
}

void StreamReactor::OnEnd(const absl::Status& status, const v1::GenerateResponse& response) {
  grpc::Status last;
  Step step = Step::kNothing;
  std::shared_ptr<Answer> answer;  // goes without the lock
  {
    base::MutexLock lock(mutex_);
    answer = std::move(answer_);
    end_ = status;
    if (!status.ok()) unsent_.Clear();
    end_response_ = response;
    ended_call_.OnEnd(status.ok());
    step = TakeStep(last);
  }
  if (step != Step::kNothing) Do(step, last);
}

void StreamReactor::OnWriteDone(bool ok) {
  grpc::Status status;
  Step step = Step::kNothing;
  std::shared_ptr<Answer> resumed;
  {
    base::MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) unsent_.Clear();
    step = TakeStep(status);
    if (full_sink_.Empty()) resumed = answer_;
  }
  // The write is under way before more can come; an answer that has not ended keeps this object.
  Do(step, status);
  if (resumed) resumed->Resume();
}

void StreamReactor::OnCancel() {
  std::shared_ptr<Answer> answer;
  {
    base::MutexLock lock(mutex_);
    answer = answer_;
  }
  if (answer) answer->Cancel();
}

void StreamReactor::OnDone() {
  {
    base::MutexLock lock(mutex_);
    place_.Reset();
  }
  std::shared_ptr<StreamReactor> self = std::move(self_);
}

void StreamReactor::GiveUp() {
  std::shared_ptr<Answer> answer;
  {
    base::MutexLock lock(mutex_);
    if (full_sink_.Expire()) answer = answer_;
  }
  if (answer) answer->GiveUpSlowClient();
}

StreamReactor::Step StreamReactor::TakeStep(grpc::Status& status) {
  if (writing_ || finished_) return Step::kNothing;
  message_.Clear();
  if (PieceBytes(unsent_) > 0) {
    writing_ = true;
    message_.set_text(std::move(*unsent_.mutable_text()));
    message_.mutable_logprobs()->Swap(unsent_.mutable_logprobs());
    unsent_.Clear();
    return Step::kWrite;
  }
  if (!end_) return Step::kNothing;
  finished_ = true;
  status = rpc::ToGrpc(*end_);
  if (!full_sink_.was_full()) place_.Reset();
  if (!end_->ok()) return Step::kFinish;
  *message_.mutable_end() = std::move(end_response_);
  return Step::kWriteAndFinish;
}

void StreamReactor::Do(Step step, const grpc::Status& status) {
  switch (step) {
    case Step::kNothing:
      return;
    case Step::kWrite:
      StartWrite(&message_);
      return;
    case Step::kWriteAndFinish:
      StartWriteAndFinish(&message_, grpc::WriteOptions(), status);
      return;
    case Step::kFinish:
      Finish(status);
      return;
  }
}

}  // namespace tessera::gateway
