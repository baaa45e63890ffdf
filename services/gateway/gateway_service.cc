#include "services/gateway/gateway_service.h"

#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/rpc/status.h"
#include "services/gateway/upload.h"

namespace tessera::gateway {
namespace {

constexpr size_t kMaxWaitingText = 1 << 20;  // bytes that a slow reader may leave behind

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

  bool OnText(const std::string& text) override {
    text_ += text;
    return true;
  }
  void OnEnd(const absl::Status& status, const v1::GenerateResponse& response) override {
    response_ = response;
    response_.set_text(text_);
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
  std::string text_;
  base::Mutex mutex_;
  std::shared_ptr<Answer> answer_ ABSL_GUARDED_BY(mutex_);
};

// One answer as a stream: one write in flight, texts that come meanwhile are joined.
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

  bool OnText(const std::string& text) override {
    base::MutexLock lock(mutex_);
    waiting_ += text;
    if (waiting_.size() > kMaxWaitingText) return false;
    WriteNext();
    return true;
  }
  void OnEnd(const absl::Status& status, const v1::GenerateResponse& response) override {
    base::MutexLock lock(mutex_);
    answer_ = nullptr;
    end_ = status;
    if (!status.ok()) waiting_.clear();
    end_response_ = response;
    limit_.Leave();
    WriteNext();
  }
  void OnWriteDone(bool ok) override {
    base::MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) waiting_.clear();
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
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (!waiting_.empty()) {
      writing_ = true;
      message_.set_text(std::move(waiting_));
      waiting_.clear();
      StartWrite(&message_);
      return;
    }
    if (!end_) return;
    finished_ = true;
    if (!end_->ok()) {
      Finish(rpc::ToGrpc(*end_));
      return;
    }
    *message_.mutable_end() = std::move(end_response_);
    StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
  }

  InflightLimit& limit_;
  base::Mutex mutex_;
  std::shared_ptr<Answer> answer_ ABSL_GUARDED_BY(mutex_);
  v1::GenerateStreamResponse message_ ABSL_GUARDED_BY(mutex_);
  std::string waiting_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  v1::GenerateResponse end_response_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

class UploadReactor final : public grpc::ServerReadReactor<v1::UploadImageRequest> {
 public:
  UploadReactor(const Answer::Parts& parts, rpc::RequestContext request,
                v1::UploadImageResponse& response)
      : parts_(parts),
        request_(std::move(request)),
        response_(response),
        upload_(parts.options, "") {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      const absl::Status status = upload_.Add(message_.data());
      if (!status.ok()) {
        Finish(rpc::ToGrpc(status));
        return;
      }
      StartRead(&message_);
      return;
    }
    if (cancelled_.load()) {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the upload was cancelled"));
      return;
    }
    absl::StatusOr<v1::UploadImageResponse> response =
        upload_.Finish(request_, parts_.resolver, parts_.clock.Now());
    if (response.ok()) response_ = *std::move(response);
    Finish(rpc::ToGrpc(response.status()));
  }
  void OnCancel() override { cancelled_.store(true); }
  void OnDone() override { delete this; }

 private:
  const Answer::Parts parts_;
  const rpc::RequestContext request_;
  v1::UploadImageResponse& response_;
  Upload upload_;
  v1::UploadImageRequest message_;
  std::atomic<bool> cancelled_{false};
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

absl::Status InflightLimit::Enter() {
  base::MutexLock lock(mutex_);
  if (draining_) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kUnavailable, "DRAINING", "this server is shutting down"),
        absl::Seconds(1));
  }
  if (inflight_ >= limit_) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    absl::StrCat(limit_,
                                 " requests are under way, which is the limit; try again "
                                 "in a moment")),
        absl::Milliseconds(500));
  }
  ++inflight_;
  return absl::OkStatus();
}

void InflightLimit::Leave() {
  base::MutexLock lock(mutex_);
  --inflight_;
  left_.SignalAll();
}

void InflightLimit::Drain(base::Clock& clock, absl::Time deadline) {
  base::MutexLock lock(mutex_);
  draining_ = true;
  while (inflight_ > 0 && clock.Now() < deadline) clock.WaitUntil(left_, mutex_, deadline);
}

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
  limit_.Leave();  // an upload waits for nobody: the vision queue bounds what follows
  return new UploadReactor(parts_, call, *response);
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
