#include "services/gateway/upload_reactor.h"

#include <chrono>
#include <utility>

#include "common/base/error.h"
#include "common/rpc/bad_message.h"
#include "common/rpc/status.h"

namespace tessera::gateway {

UploadReactor::UploadReactor(UploadParts parts, rpc::RequestContext request, absl::Time arrival,
                             std::string tenant, v1::UploadImageResponse& response)
    : token_(parts.tracker),
      parts_(std::move(parts)),
      request_(std::move(request)),
      arrival_(arrival),
      response_(response),
      upload_(parts_.options, parts_.budget, std::move(tenant)) {
  const absl::Duration left = request_.deadline - parts_.clock.Now();
  alarm_.Set(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(left),
             [this](bool due) { OnAlarm(due); });
  ReadNext();
}

void UploadReactor::OnReadDone(bool ok) {
  if (ok) {
    if (const absl::Status status = upload_.Add(message_); !status.ok()) return End(status);
    return ReadNext();
  }
  if (ended_.load()) return;
  if (rpc::WasBadMessage(message_)) return End(rpc::FromGrpc(rpc::BadMessage()));
  if (cancelled_.load()) return End(absl::CancelledError("the upload was cancelled"));
  absl::StatusOr<v1::UploadImageResponse> response =
      upload_.Finish(request_, parts_.resolver, parts_.ahead, parts_.clock.Now());
  if (response.ok() && !ended_.load()) response_ = *response;
  End(response.status());
}

void UploadReactor::OnDone() {
  alarm_.Cancel();
  Release();
}

void UploadReactor::OnAlarm(bool due) {
  if (due) {
    End(base::WithFact(base::Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                                   "the upload was not finished in time"),
                       "stage", "upload"));
  }
  Release();
}

void UploadReactor::ReadNext() {
  rpc::BeforeRead(message_);
  StartRead(&message_);
}

void UploadReactor::End(const absl::Status& status) {
  if (ended_.exchange(true)) return;
  parts_.metrics.OnEnd({RequestKind::kUpload, request_, arrival_, parts_.clock.Now()}, status,
                       "upload");
  parts_.limit.Leave();
  Finish(rpc::ToGrpc(status));
}

// gRPC and the alarm both let go before this goes.
void UploadReactor::Release() {
  if (holders_.fetch_sub(1) == 1) delete this;
}

}  // namespace tessera::gateway
