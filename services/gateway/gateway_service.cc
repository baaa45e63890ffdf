#include "services/gateway/gateway_service.h"

#include <optional>
#include <utility>

#include "common/base/mutex.h"
#include "common/rpc/status.h"
#include "services/gateway/upload_reactor.h"

namespace tessera::gateway {
namespace {

constexpr size_t kMaxWaitingBytes = 1 << 20;  // that a slow reader may leave behind
constexpr size_t kLogprobBytes = 256;         // of one token's, about

void Append(v1::TextPiece piece, v1::TextPiece& to) {
  to.mutable_text()->append(piece.text());
  for (v1::TokenLogprob& token : *piece.mutable_logprobs()) *to.add_logprobs() = std::move(token);
}

size_t Bytes(const v1::TextPiece& piece) {
  return piece.text().size() + static_cast<size_t>(piece.logprobs_size()) * kLogprobBytes;
}

// One answer in one message.
class UnaryAnswer final : public grpc::ServerUnaryReactor, public AnswerSink {
 public:
  UnaryAnswer(InflightLimit& limit, v1::GenerateResponse& response)
      : limit_(limit), response_(response) {}

  void Run(std::shared_ptr<Answer> answer, const v1::GenerateRequest& request) {
    {
      base::MutexLock lock(mutex_);
      answer_ = answer;
    }
    answer->Start(request, "");
  }

  bool OnPiece(v1::TextPiece piece) override {
    Append(std::move(piece), answered_);
    return true;
  }
  void OnEnd(const absl::Status& status, const v1::GenerateResponse& response) override {
    response_ = response;
    response_.set_text(std::move(*answered_.mutable_text()));
    response_.mutable_logprobs()->Swap(answered_.mutable_logprobs());
    {
      base::MutexLock lock(mutex_);
      answer_ = nullptr;
    }
    limit_.Leave();
    Finish(rpc::ToGrpc(status));
  }
  void OnCancel() override {
    std::shared_ptr<Answer> answer;
    {
      base::MutexLock lock(mutex_);
      answer = answer_;
    }
    if (answer) answer->Cancel();
  }
  void OnDone() override { delete this; }

 private:
  InflightLimit& limit_;
  v1::GenerateResponse& response_;
  v1::TextPiece answered_;
  base::Mutex mutex_;
  std::shared_ptr<Answer> answer_ ABSL_GUARDED_BY(mutex_);
};

// One answer as a stream: one write in flight, pieces that come meanwhile are joined.
class StreamAnswer final : public grpc::ServerWriteReactor<v1::GenerateStreamResponse>,
                           public AnswerSink {
 public:
  explicit StreamAnswer(InflightLimit& limit) : limit_(limit) {}

  void Run(std::shared_ptr<Answer> answer, const v1::GenerateRequest& request) {
    {
      base::MutexLock lock(mutex_);
      answer_ = answer;
    }
    answer->Start(request, "");
  }

  bool OnPiece(v1::TextPiece piece) override {
    {
      base::MutexLock lock(mutex_);
      Append(std::move(piece), waiting_);
      if (Bytes(waiting_) > kMaxWaitingBytes) return false;
    }
    WriteNext();
    return true;
  }
  // Once the lock is given back, another thread may end the call and this object, unless the next
  // step is ours.
  void OnEnd(const absl::Status& status, const v1::GenerateResponse& response) override {
    limit_.Leave();
    grpc::Status last;
    Step step = Step::kNothing;
    {
      base::MutexLock lock(mutex_);
      answer_ = nullptr;
      end_ = status;
      if (!status.ok()) waiting_.Clear();
      end_response_ = response;
      step = TakeStep(last);
    }
    if (step != Step::kNothing) Do(step, last);
  }
  void OnWriteDone(bool ok) override {
    {
      base::MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) waiting_.Clear();
    }
    WriteNext();
  }
  void OnCancel() override {
    std::shared_ptr<Answer> answer;
    {
      base::MutexLock lock(mutex_);
      answer = answer_;
    }
    if (answer) answer->Cancel();
  }
  void OnDone() override { delete this; }

 private:
  enum class Step { kNothing, kWrite, kWriteAndFinish, kFinish };

  // What comes next, message_ filled for it. Whoever is told to finish is told so once.
  Step TakeStep(grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return Step::kNothing;
    message_.Clear();
    if (Bytes(waiting_) > 0) {
      writing_ = true;
      message_.set_text(std::move(*waiting_.mutable_text()));
      message_.mutable_logprobs()->Swap(waiting_.mutable_logprobs());
      waiting_.Clear();
      return Step::kWrite;
    }
    if (!end_) return Step::kNothing;
    finished_ = true;
    status = rpc::ToGrpc(*end_);
    if (!end_->ok()) return Step::kFinish;
    *message_.mutable_end() = std::move(end_response_);
    return Step::kWriteAndFinish;
  }

  // The lock is given back before gRPC is called: once it knows of the end of a cancelled call, it
  // may delete this object from another thread at any moment.
  void WriteNext() {
    grpc::Status status;
    Step step = Step::kNothing;
    {
      base::MutexLock lock(mutex_);
      step = TakeStep(status);
    }
    Do(step, status);
  }

  void Do(Step step, const grpc::Status& status) {
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

  InflightLimit& limit_;
  v1::GenerateStreamResponse message_;  // of whoever TakeStep told to write
  base::Mutex mutex_;
  std::shared_ptr<Answer> answer_ ABSL_GUARDED_BY(mutex_);
  v1::TextPiece waiting_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  v1::GenerateResponse end_response_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// A stream that ends at once with an error.
class RefusedStream final : public grpc::ServerWriteReactor<v1::GenerateStreamResponse> {
 public:
  explicit RefusedStream(const absl::Status& status) { Finish(rpc::ToGrpc(status)); }
  void OnDone() override { delete this; }
};

class RefusedUpload final : public grpc::ServerReadReactor<v1::UploadImageRequest> {
 public:
  explicit RefusedUpload(const absl::Status& status) { Finish(rpc::ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerUnaryReactor* GatewayService::Generate(grpc::CallbackServerContext* context,
                                                   const v1::GenerateRequest* request,
                                                   v1::GenerateResponse* response) {
  const absl::Time now = parts_.clock.Now();
  const rpc::RequestContext call = rpc::AcceptRequest(*context, now, parts_.options.deadline_cap);
  if (const absl::Status entered = limit_.Enter(); !entered.ok()) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(rpc::ToGrpc(entered));
    return reactor;
  }
  auto* reactor = new UnaryAnswer(limit_, *response);
  reactor->Run(std::make_shared<Answer>(parts_, call, now, *reactor), *request);
  return reactor;
}

grpc::ServerWriteReactor<v1::GenerateStreamResponse>* GatewayService::GenerateStream(
    grpc::CallbackServerContext* context, const v1::GenerateStreamRequest* request) {
  const absl::Time now = parts_.clock.Now();
  const rpc::RequestContext call = rpc::AcceptRequest(*context, now, parts_.options.deadline_cap);
  if (const absl::Status entered = limit_.Enter(); !entered.ok()) {
    return new RefusedStream(entered);
  }
  auto* reactor = new StreamAnswer(limit_);
  reactor->Run(std::make_shared<Answer>(parts_, call, now, *reactor), request->request());
  return reactor;
}

grpc::ServerReadReactor<v1::UploadImageRequest>* GatewayService::UploadImage(
    grpc::CallbackServerContext* context, v1::UploadImageResponse* response) {
  const absl::Time now = parts_.clock.Now();
  const rpc::RequestContext call = rpc::AcceptRequest(*context, now, parts_.options.deadline_cap);
  const absl::Status entered = limit_.Enter();
  if (!entered.ok()) return new RefusedUpload(entered);
  return new UploadReactor(
      {parts_.options, parts_.resolver, parts_.clock, uploads_, limit_, tracker_, ahead_}, call,
      *response);
}

grpc::ServerUnaryReactor* GatewayService::GetModelInfo(grpc::CallbackServerContext* context,
                                                       const v1::GetModelInfoRequest*,
                                                       v1::GetModelInfoResponse* response) {
  rpc::AcceptRequest(*context, parts_.clock.Now(), parts_.options.deadline_cap);
  *response = model_info_;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tessera::gateway
