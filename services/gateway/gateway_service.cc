#include "services/gateway/gateway_service.h"

#include <utility>

#include "common/base/mutex.h"
#include "common/rpc/api_keys.h"
#include "common/rpc/status.h"
#include "services/gateway/pieces.h"
#include "services/gateway/stream_reactor.h"
#include "services/gateway/upload_reactor.h"

namespace tessera::gateway {
namespace {

// One answer in one message.
class UnaryAnswer final : public grpc::ServerUnaryReactor, public AnswerSink {
 public:
  UnaryAnswer(Admission::Place place, v1::GenerateResponse& response)
      : place_(std::move(place)), response_(response) {}

  void Run(std::shared_ptr<Answer> answer, const v1::GenerateRequest& request,
           const std::string& tenant) {
    {
      base::MutexLock lock(mutex_);
      answer_ = answer;
    }
    answer->Start(request, tenant);
  }

  bool OnPiece(v1::TextPiece piece) override {
    Append(std::move(piece), answered_);
    return true;  // max_tokens bounds it
  }
  void OnEnd(const absl::Status& status, const v1::GenerateResponse& response) override {
    response_ = response;
    response_.set_text(std::move(*answered_.mutable_text()));
    response_.mutable_logprobs()->Swap(answered_.mutable_logprobs());
    {
      base::MutexLock lock(mutex_);
      answer_ = nullptr;
    }
    place_.Reset();
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
  Admission::Place place_;
  v1::GenerateResponse& response_;
  v1::TextPiece answered_;
  base::Mutex mutex_;
  std::shared_ptr<Answer> answer_ ABSL_GUARDED_BY(mutex_);
};

grpc::ServerUnaryReactor* Refused(grpc::CallbackServerContext& context,
                                  const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(rpc::ToGrpc(status));
  return reactor;
}

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

rpc::RequestContext GatewayService::Accept(grpc::CallbackServerContext& context,
                                           absl::Time now) const {
  return rpc::AcceptRequest(context, now, parts_.options.deadline_cap,
                            parts_.options.spans != nullptr);
}

absl::StatusOr<std::string> GatewayService::Authenticate(const grpc::CallbackServerContext& context,
                                                         const EndedRequest& call) const {
  if (parts_.options.api_keys == nullptr) return std::string();
  absl::StatusOr<std::string> tenant = parts_.options.api_keys->TenantOf(context);
  if (!tenant.ok()) parts_.metrics.OnEnd(call, tenant.status(), "admission");
  return tenant;
}

absl::StatusOr<Admission::Place> GatewayService::Enter(const std::string& tenant,
                                                       const EndedRequest& call) const {
  absl::StatusOr<Admission::Place> place = parts_.admission.Enter(tenant);
  if (!place.ok()) parts_.metrics.OnEnd(call, place.status(), "admission");
  return place;
}

grpc::ServerUnaryReactor* GatewayService::Generate(grpc::CallbackServerContext* context,
                                                   const v1::GenerateRequest* request,
                                                   v1::GenerateResponse* response) {
  const absl::Time now = parts_.clock.Now();
  const rpc::RequestContext call = Accept(*context, now);
  const absl::StatusOr<std::string> tenant =
      Authenticate(*context, {RequestKind::kGenerate, call, now, now});
  if (!tenant.ok()) return Refused(*context, tenant.status());
  absl::StatusOr<Admission::Place> place = Enter(*tenant, {RequestKind::kGenerate, call, now, now});
  if (!place.ok()) return Refused(*context, place.status());
  auto* reactor = new UnaryAnswer(*std::move(place), *response);
  reactor->Run(std::make_shared<Answer>(parts_, call, now, *reactor), *request, *tenant);
  return reactor;
}

grpc::ServerWriteReactor<v1::GenerateStreamResponse>* GatewayService::GenerateStream(
    grpc::CallbackServerContext* context, const v1::GenerateStreamRequest* request) {
  const absl::Time now = parts_.clock.Now();
  const rpc::RequestContext call = Accept(*context, now);
  const absl::StatusOr<std::string> tenant =
      Authenticate(*context, {RequestKind::kGenerateStream, call, now, now});
  if (!tenant.ok()) return new RefusedStream(tenant.status());
  absl::StatusOr<Admission::Place> place =
      Enter(*tenant, {RequestKind::kGenerateStream, call, now, now});
  if (!place.ok()) return new RefusedStream(place.status());
  return StreamReactor::Start({parts_.options, timers_, parts_.clock}, parts_,
                              {call, now, *tenant, *std::move(place)}, request->request());
}

grpc::ServerReadReactor<v1::UploadImageRequest>* GatewayService::UploadImage(
    grpc::CallbackServerContext* context, v1::UploadImageResponse* response) {
  const absl::Time now = parts_.clock.Now();
  const rpc::RequestContext call = Accept(*context, now);
  const absl::StatusOr<std::string> tenant =
      Authenticate(*context, {RequestKind::kUpload, call, now, now});
  if (!tenant.ok()) return new RefusedUpload(tenant.status());
  absl::StatusOr<Admission::Place> place = Enter(*tenant, {RequestKind::kUpload, call, now, now});
  if (!place.ok()) return new RefusedUpload(place.status());
  return UploadReactor::Start({parts_.options, parts_.resolver, parts_.clock, parts_.metrics,
                               uploads_, timers_, tracker_, ahead_},
                              {call, now, *tenant, *std::move(place)}, *response);
}

grpc::ServerUnaryReactor* GatewayService::GetModelInfo(grpc::CallbackServerContext* context,
                                                       const v1::GetModelInfoRequest*,
                                                       v1::GetModelInfoResponse* response) {
  rpc::AcceptRequest(*context, parts_.clock.Now(), parts_.options.deadline_cap);
  if (parts_.options.api_keys != nullptr) {
    const absl::Status known = parts_.options.api_keys->TenantOf(*context).status();
    if (!known.ok()) return Refused(*context, known);
  }
  *response = model_info_;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tessera::gateway
