#include "services/gateway/api/upload_reactor.h"

#include <utility>

#include "common/base/error.h"
#include "common/rpc/bad_message.h"
#include "common/rpc/status.h"

namespace tessera::gateway {

UploadReactor::UploadReactor(UploadDeps deps, AdmittedCall call,
                             grpc::CallbackServerContext& context,
                             v1::UploadImageResponse& response)
    : token_(deps.tracker),
      deps_(std::move(deps)),
      wire_(context),
      request_(std::move(call.request)),
      arrival_(call.arrival),
      place_(std::move(call.place)),
      ended_call_(context, {deps_.options, deps_.timers, deps_.clock}),
      response_(response),
      upload_(deps_.options, deps_.budget, std::move(call.tenant)) {}

UploadReactor* UploadReactor::Start(UploadDeps deps, AdmittedCall call,
                                    grpc::CallbackServerContext& context,
                                    v1::UploadImageResponse& response) {
  const std::shared_ptr<UploadReactor> reactor(
      new UploadReactor(std::move(deps), std::move(call), context, response));
  reactor->self_ = reactor;
  reactor->deps_.running.Add(reactor);
  reactor->expiry_ = reactor->deps_.timers.At(
      reactor->request_.deadline, [weak = std::weak_ptr<UploadReactor>(reactor)] {
        const std::shared_ptr<UploadReactor> late = weak.lock();
        if (!late) return;
        late->End(base::WithFact(base::Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                                             "the upload was not finished in time"),
                                 "stage", "upload"));
      });
  reactor->ReadNext();
  return reactor.get();
}

void UploadReactor::OnReadDone(bool ok) {
  if (ended_.load()) return;
  if (ok) {
    if (message_.too_many_fields) return End(rpc::TooManyFields());
    const absl::Status status = upload_.Add(message_.Take());
    return status.ok() ? ReadNext() : End(status);
  }
  if (rpc::WasBadMessage(message_.message)) return End(rpc::FromGrpc(rpc::BadMessage()));
  if (wire_.IsCancelled()) return End(Left());  // OnCancel may come later
  absl::StatusOr<v1::UploadImageResponse> response =
      upload_.Finish(request_, deps_.resolver, deps_.ahead, deps_.clock);
  if (response.ok() && !ended_.load()) response_ = *response;
  End(response.status());
}

void UploadReactor::OnDone() {
  deps_.timers.Cancel(expiry_);
  deps_.running.Remove(*this);
  const std::shared_ptr<UploadReactor> self = std::move(self_);
}

void UploadReactor::ReadNext() {
  rpc::BeforeRead(message_.message);
  StartRead(&message_);
}

void UploadReactor::End(const absl::Status& status) {
  if (ended_.exchange(true)) return;
  deps_.metrics.OnEnd({RequestKind::kUpload, request_, arrival_, deps_.clock.Now()}, status,
                      "upload");
  place_.Reset();
  ended_call_.OnEnd(status.ok());
  Finish(rpc::ToGrpc(status));
}

}  // namespace tessera::gateway
