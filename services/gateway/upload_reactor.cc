#include "services/gateway/upload_reactor.h"

#include <utility>

#include "common/base/error.h"
#include "common/rpc/bad_message.h"
#include "common/rpc/status.h"

namespace tessera::gateway {

UploadReactor::UploadReactor(UploadParts parts, AdmittedCall call,
                             grpc::CallbackServerContext& context,
                             v1::UploadImageResponse& response)
    : token_(parts.tracker),
      parts_(std::move(parts)),
      wire_(context),
      request_(std::move(call.request)),
      arrival_(call.arrival),
      place_(std::move(call.place)),
      cut_(context, {parts_.options, parts_.timers, parts_.clock}),
      response_(response),
      upload_(parts_.options, parts_.budget, std::move(call.tenant)) {}

UploadReactor* UploadReactor::Start(UploadParts parts, AdmittedCall call,
                                    grpc::CallbackServerContext& context,
                                    v1::UploadImageResponse& response) {
  const std::shared_ptr<UploadReactor> reactor(
      new UploadReactor(std::move(parts), std::move(call), context, response));
  reactor->self_ = reactor;
  reactor->parts_.running.Add(reactor);
  reactor->expiry_ = reactor->parts_.timers.At(
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
    if (const absl::Status status = upload_.Add(message_.message); !status.ok()) return End(status);
    return ReadNext();
  }
  if (rpc::WasBadMessage(message_.message)) return End(rpc::FromGrpc(rpc::BadMessage()));
  if (wire_.IsCancelled()) return End(Left());  // OnCancel may come later
  absl::StatusOr<v1::UploadImageResponse> response =
      upload_.Finish(request_, parts_.resolver, parts_.ahead, parts_.clock);
  if (response.ok() && !ended_.load()) response_ = *response;
  End(response.status());
}

void UploadReactor::OnDone() {
  parts_.timers.Cancel(expiry_);
  parts_.running.Remove(*this);
  const std::shared_ptr<UploadReactor> self = std::move(self_);
}

void UploadReactor::ReadNext() {
  rpc::BeforeRead(message_.message);
  StartRead(&message_);
}

void UploadReactor::End(const absl::Status& status) {
  if (ended_.exchange(true)) return;
  parts_.metrics.OnEnd({RequestKind::kUpload, request_, arrival_, parts_.clock.Now()}, status,
                       "upload");
  place_.Reset();
  cut_.OnEnd(status.ok());
  Finish(rpc::ToGrpc(status));
}

}  // namespace tessera::gateway
