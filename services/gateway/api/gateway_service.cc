#include "services/gateway/api/gateway_service.h"

#include <utility>

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/api_keys.h"
#include "common/rpc/request.h"
#include "common/rpc/status.h"
#include "services/gateway/api/ended_call.h"
#include "services/gateway/api/pieces.h"
#include "services/gateway/api/stream_reactor.h"
#include "services/gateway/api/upload_reactor.h"

namespace tessera::gateway {
namespace {

// One answer in one message.
class UnaryAnswer final : public grpc::ServerUnaryReactor, public AnswerSink {
 public:
  UnaryAnswer(const ReactorDeps& deps, AdmittedCall& call, grpc::CallbackServerContext& context,
              v1::GenerateResponse& response)
      : hold_(std::move(call.held)),
        ended_call_(context, deps),
        place_(std::move(call.place)),
        response_(response) {}

  void Run(std::shared_ptr<Answer> answer, v1::GenerateRequest request, const std::string& tenant) {
    {
      base::MutexLock lock(mutex_);
      answer_ = answer;
    }
    answer->Start(std::move(request), tenant);
  }

  bool OnPiece(v1::TextPiece piece) override {
    Append(std::move(piece), text_);
    return true;  // max_tokens bounds it
  }
  void OnEnd(const absl::Status& status, const v1::GenerateResponse& response) override {
    response_ = response;
    response_.set_text(std::move(*text_.mutable_text()));
    response_.mutable_logprobs()->Swap(text_.mutable_logprobs());
    {
      base::MutexLock lock(mutex_);
      answer_ = nullptr;
    }
    place_.Reset();
    ended_call_.OnEnd(status.ok());
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
  const ByteBudget::Hold hold_;  // of the request, which gRPC keeps as long
  EndedCall ended_call_;
  Admission::Place place_;
  v1::GenerateResponse& response_;
  v1::TextPiece text_;
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

class RefusedUpload final : public grpc::ServerReadReactor<rpc::Bounded<v1::UploadImageRequest>> {
 public:
  explicit RefusedUpload(const absl::Status& status) { Finish(rpc::ToGrpc(status)); }
  void OnDone() override { delete this; }
};

// Of the methods in protos/tessera/v1/gateway.proto, in their order there.
constexpr int kGenerate = 0, kGenerateStream = 1, kUploadImage = 2, kGetModelInfo = 3;

}  // namespace

GatewayService::GatewayService(const ApiDeps& deps, v1::GetModelInfoResponse model_info)
    : deps_(deps),
      model_info_(std::move(model_info)),
      uploads_(deps.options.upload_limits()),
      inflight_(deps.options.inflight_limits()),
      timers_(deps.answer.clock),
      ahead_(std::make_shared<AheadPrefill>(deps.answer.decode)) {
  TakeBounded();
}

// Generated code knows its own types of messages alone; handlers take others.
void GatewayService::TakeBounded() {
  using grpc::internal::CallbackClientStreamingHandler;
  using grpc::internal::CallbackServerStreamingHandler;
  using grpc::internal::CallbackUnaryHandler;
  using Context = grpc::CallbackServerContext;
  using GenerateIn = rpc::Bounded<v1::GenerateRequest>;
  using StreamIn = rpc::Bounded<v1::GenerateStreamRequest>;
  using UploadIn = rpc::Bounded<v1::UploadImageRequest>;
  using InfoIn = rpc::Bounded<v1::GetModelInfoRequest>;
  MarkMethodRawCallback(
      kGenerate, new CallbackUnaryHandler<GenerateIn, v1::GenerateResponse>(
                     [this](Context* context, const GenerateIn* in, v1::GenerateResponse* out) {
                       return DoGenerate(*context, *in, *out);
                     }));
  MarkMethodRawCallback(kGenerateStream,
                        new CallbackServerStreamingHandler<StreamIn, v1::GenerateStreamResponse>(
                            [this](Context* context, const StreamIn* in) {
                              return DoGenerateStream(*context, *in);
                            }));
  MarkMethodRawCallback(kUploadImage,
                        new CallbackClientStreamingHandler<UploadIn, v1::UploadImageResponse>(
                            [this](Context* context, v1::UploadImageResponse* out) {
                              return DoUploadImage(*context, *out);
                            }));
  MarkMethodRawCallback(
      kGetModelInfo, new CallbackUnaryHandler<InfoIn, v1::GetModelInfoResponse>(
                         [this](Context* context, const InfoIn* in, v1::GetModelInfoResponse* out) {
                           return DoGetModelInfo(*context, *in, *out);
                         }));
}

rpc::RequestContext GatewayService::Accept(grpc::CallbackServerContext& context,
                                           absl::Time now) const {
  return rpc::AcceptRequest(context, now, deps_.options.deadline_cap,
                            deps_.options.spans != nullptr);
}

absl::StatusOr<std::string> GatewayService::Authenticate(const grpc::CallbackServerContext& context,
                                                         const EndedRequest& call) const {
  if (deps_.options.api_keys == nullptr) return std::string();
  absl::StatusOr<std::string> tenant = deps_.options.api_keys->TenantOf(context);
  if (!tenant.ok()) deps_.answer.metrics.OnEnd(call, tenant.status(), "admission");
  return tenant;
}

absl::StatusOr<Admission::Place> GatewayService::Enter(const std::string& tenant,
                                                       const EndedRequest& call) const {
  absl::StatusOr<Admission::Place> place = deps_.answer.admission.Enter(tenant);
  if (!place.ok()) deps_.answer.metrics.OnEnd(call, place.status(), "admission");
  return place;
}

absl::StatusOr<AdmittedCall> GatewayService::Admit(grpc::CallbackServerContext& context,
                                                   RequestKind kind, bool too_many_fields,
                                                   size_t bytes) {
  const absl::Time now = deps_.answer.clock.Now();
  rpc::RequestContext call = Accept(context, now);
  ASSIGN_OR_RETURN(std::string tenant, Authenticate(context, {kind, call, now, now}));
  if (too_many_fields) {
    const absl::Status status = rpc::TooManyFields();
    deps_.answer.metrics.OnEnd({kind, call, now, now}, status, "admission");
    return status;
  }
  ASSIGN_OR_RETURN(Admission::Place place, Enter(tenant, {kind, call, now, now}));
  ByteBudget::Hold held = inflight_.For(tenant);
  if (const absl::Status status = held.Grow(bytes); !status.ok()) {
    deps_.answer.metrics.OnEnd({kind, call, now, now}, status, "admission");
    return status;
  }
  return AdmittedCall{std::move(call), now, std::move(tenant), std::move(place), std::move(held)};
}

grpc::ServerUnaryReactor* GatewayService::DoGenerate(
    grpc::CallbackServerContext& context, const rpc::Bounded<v1::GenerateRequest>& request,
    v1::GenerateResponse& response) {
  absl::StatusOr<AdmittedCall> call = Admit(
      context, RequestKind::kGenerate, request.too_many_fields, request.message.ByteSizeLong());
  if (!call.ok()) return Refused(context, call.status());
  auto* reactor =
      new UnaryAnswer({deps_.options, timers_, deps_.answer.clock}, *call, context, response);
  reactor->Run(
      std::make_shared<Answer>(deps_.answer, std::move(call->request), call->arrival, *reactor),
      request.Take(), call->tenant);
  return reactor;
}

grpc::ServerWriteReactor<v1::GenerateStreamResponse>* GatewayService::DoGenerateStream(
    grpc::CallbackServerContext& context, const rpc::Bounded<v1::GenerateStreamRequest>& request) {
  absl::StatusOr<AdmittedCall> call =
      Admit(context, RequestKind::kGenerateStream, request.too_many_fields,
            request.message.ByteSizeLong());
  if (!call.ok()) return new RefusedStream(call.status());
  return StreamReactor::Start({deps_.options, timers_, deps_.answer.clock}, deps_.answer,
                              *std::move(call), context,
                              std::move(*request.Take().mutable_request()));
}

grpc::ServerReadReactor<rpc::Bounded<v1::UploadImageRequest>>* GatewayService::DoUploadImage(
    grpc::CallbackServerContext& context, v1::UploadImageResponse& response) {
  absl::StatusOr<AdmittedCall> call =
      Admit(context, RequestKind::kUpload, false, 0);  // each message is looked at as it comes
  if (!call.ok()) return new RefusedUpload(call.status());
  return UploadReactor::Start(
      {deps_.options, deps_.answer.resolver, deps_.answer.clock, deps_.answer.metrics, uploads_,
       timers_, tracker_, deps_.answer.running, ahead_},
      *std::move(call), context, response);
}

grpc::ServerUnaryReactor* GatewayService::DoGetModelInfo(
    grpc::CallbackServerContext& context, const rpc::Bounded<v1::GetModelInfoRequest>& request,
    v1::GetModelInfoResponse& response) {
  rpc::AcceptRequest(context, deps_.answer.clock.Now(), deps_.options.deadline_cap);
  if (deps_.options.api_keys != nullptr) {
    const absl::Status known = deps_.options.api_keys->TenantOf(context).status();
    if (!known.ok()) return Refused(context, known);
  }
  if (request.too_many_fields) return Refused(context, rpc::TooManyFields());
  response = model_info_;
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tessera::gateway
