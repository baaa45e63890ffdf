#include "services/gateway/gateway_service.h"

#include <grpcpp/alarm.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/rpc/bad_message.h"
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
    {
      base::MutexLock lock(mutex_);
      waiting_ += text;
      if (waiting_.size() > kMaxWaitingText) return false;
    }
    WriteNext();
    return true;
  }
  void OnEnd(const absl::Status& status, const v1::GenerateResponse& response) override {
    {
      base::MutexLock lock(mutex_);
      answer_ = nullptr;
      end_ = status;
      if (!status.ok()) waiting_.clear();
      end_response_ = response;
    }
    limit_.Leave();
    WriteNext();
  }
  void OnWriteDone(bool ok) override {
    {
      base::MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) waiting_.clear();
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
  Step TakeStep(grpc::Status& status) {
    base::MutexLock lock(mutex_);
    if (writing_ || finished_) return Step::kNothing;
    if (!waiting_.empty()) {
      writing_ = true;
      message_.set_text(std::move(waiting_));
      waiting_.clear();
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
    switch (TakeStep(status)) {
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
  std::string waiting_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  v1::GenerateResponse end_response_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// One upload. Whoever is first of the last byte, an error and the deadline ends it.
class UploadReactor final : public grpc::ServerReadReactor<v1::UploadImageRequest> {
 public:
  UploadReactor(const Answer::Parts& parts, UploadBudget& budget, InflightLimit& limit,
                rpc::RequestContext request, v1::UploadImageResponse& response)
      : parts_(parts),
        limit_(limit),
        request_(std::move(request)),
        response_(response),
        upload_(parts.options, budget, "") {
    const absl::Duration left = request_.deadline - parts_.clock.Now();
    alarm_.Set(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(left),
               [this](bool due) { OnAlarm(due); });
    ReadNext();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      if (const absl::Status status = upload_.Add(message_.data()); !status.ok())
        return End(status);
      return ReadNext();
    }
    if (ended_.load()) return;
    if (rpc::WasBadMessage(message_)) return End(rpc::BadMessage());
    if (cancelled_.load()) return End(absl::CancelledError("the upload was cancelled"));
    absl::StatusOr<v1::UploadImageResponse> response =
        upload_.Finish(request_, parts_.resolver, parts_.clock.Now());
    if (response.ok() && !ended_.load()) response_ = *response;
    End(response.status());
  }
  void OnCancel() override { cancelled_.store(true); }
  void OnDone() override {
    alarm_.Cancel();
    Release();
  }

 private:
  void OnAlarm(bool due) {
    if (due) {
      End(base::WithFact(base::Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                                     "the upload was not finished in time"),
                         "stage", "upload"));
    }
    Release();
  }
  void ReadNext() {
    rpc::BeforeRead(message_);
    StartRead(&message_);
  }
  void End(const absl::Status& status) { End(rpc::ToGrpc(status)); }
  void End(const grpc::Status& status) {
    if (!ended_.exchange(true)) Finish(status);
  }
  // gRPC and the alarm both let go before this goes.
  void Release() {
    if (holders_.fetch_sub(1) != 1) return;
    InflightLimit& limit = limit_;
    delete this;
    limit.Leave();  // last: who waits for it may then end what this used
  }

  const Answer::Parts parts_;
  InflightLimit& limit_;
  const rpc::RequestContext request_;
  v1::UploadImageResponse& response_;
  Upload upload_;
  v1::UploadImageRequest message_;
  grpc::Alarm alarm_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> ended_{false};
  std::atomic<int> holders_{2};
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
  return new UploadReactor(parts_, uploads_, limit_, call, *response);
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
