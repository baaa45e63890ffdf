#pragma once

#include <memory>
#include <utility>

#include "common/base/timers.h"
#include "common/rpc/bounded.h"
#include "common/rpc/call_tracker.h"
#include "services/gateway/api/api_deps.h"
#include "services/gateway/api/upload.h"
#include "services/gateway/pictures/ahead_prefill.h"
#include "tessera/v1/gateway.grpc.pb.h"

namespace tessera::gateway {

// tessera.v1.GatewayService: translates between protos and Answer, nothing else. Callback API; the
// requests that strangers send are Bounded.
class GatewayService final : public v1::GatewayService::CallbackService {
 public:
  GatewayService(const ApiDeps& deps, v1::GetModelInfoResponse model_info);
  // REQUIRES: the server that served it has been shut down.
  ~GatewayService() override { StopAhead(); }
  // No more work ahead of questions; waits for what of it is under way, which is cancelled.
  void StopAhead() { ahead_->Close(); }

 private:
  void TakeBounded();
  grpc::ServerUnaryReactor* DoGenerate(grpc::CallbackServerContext& context,
                                       const rpc::Bounded<v1::GenerateRequest>& request,
                                       v1::GenerateResponse& response);
  grpc::ServerWriteReactor<v1::GenerateStreamResponse>* DoGenerateStream(
      grpc::CallbackServerContext& context, const rpc::Bounded<v1::GenerateStreamRequest>& request);
  grpc::ServerReadReactor<rpc::Bounded<v1::UploadImageRequest>>* DoUploadImage(
      grpc::CallbackServerContext& context, v1::UploadImageResponse& response);
  grpc::ServerUnaryReactor* DoGetModelInfo(grpc::CallbackServerContext& context,
                                           const rpc::Bounded<v1::GetModelInfoRequest>& request,
                                           v1::GetModelInfoResponse& response);
  rpc::RequestContext Accept(grpc::CallbackServerContext& context, absl::Time now) const;
  // The tenant of a call. UNAUTHENTICATED, told as the end of `call`.
  absl::StatusOr<std::string> Authenticate(const grpc::CallbackServerContext& context,
                                           const EndedRequest& call) const;
  // Key, then fields, then a place, then its bytes: what a request passes before anything is done
  // for it.
  absl::StatusOr<AdmittedCall> Admit(grpc::CallbackServerContext& context, RequestKind kind,
                                     bool too_many_fields, size_t bytes);
  // A place for it among the requests under way; or why not, told as the end of `call`.
  absl::StatusOr<Admission::Place> Enter(const std::string& tenant, const EndedRequest& call) const;

  const ApiDeps deps_;
  const v1::GetModelInfoResponse model_info_;
  ByteBudget uploads_, inflight_;
  base::Timers timers_;
  const std::shared_ptr<AheadPrefill> ahead_;
  rpc::CallTracker tracker_;  // last: waits for the uploads first
};

}  // namespace tessera::gateway
