#pragma once

#include <memory>
#include <utility>

#include "common/base/timers.h"
#include "services/gateway/ahead_prefill.h"
#include "services/gateway/answer.h"
#include "services/gateway/call_tracker.h"
#include "services/gateway/upload.h"
#include "tessera/v1/gateway.grpc.pb.h"

namespace tessera::gateway {

// tessera.v1.GatewayService: translates between protos and Answer, nothing else. Callback API.
class GatewayService final : public v1::GatewayService::CallbackService {
 public:
  GatewayService(const Answer::Parts& parts, v1::GetModelInfoResponse model_info)
      : parts_(parts),
        model_info_(std::move(model_info)),
        uploads_(parts.options.max_upload_bytes),
        timers_(parts.clock),
        ahead_(std::make_shared<AheadPrefill>(parts.decode)) {}
  // REQUIRES: the server that served it has been shut down.
  ~GatewayService() override { StopAhead(); }
  // No more work ahead of questions; waits for what of it is under way, which is cancelled.
  void StopAhead() { ahead_->Close(); }

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const v1::GenerateRequest* request,
                                     v1::GenerateResponse* response) override;
  grpc::ServerWriteReactor<v1::GenerateStreamResponse>* GenerateStream(
      grpc::CallbackServerContext* context, const v1::GenerateStreamRequest* request) override;
  grpc::ServerReadReactor<v1::UploadImageRequest>* UploadImage(
      grpc::CallbackServerContext* context, v1::UploadImageResponse* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const v1::GetModelInfoRequest* request,
                                         v1::GetModelInfoResponse* response) override;

 private:
  rpc::RequestContext Accept(grpc::CallbackServerContext& context, absl::Time now) const;
  // The tenant of a call. UNAUTHENTICATED, told as the end of `call`.
  absl::StatusOr<std::string> Authenticate(const grpc::CallbackServerContext& context,
                                           const EndedRequest& call) const;
  // A place for it among the requests under way, likewise.
  absl::StatusOr<Admission::Place> Enter(const std::string& tenant, const EndedRequest& call) const;

  const Answer::Parts parts_;
  const v1::GetModelInfoResponse model_info_;
  UploadBudget uploads_;
  base::Timers timers_;
  const std::shared_ptr<AheadPrefill> ahead_;
  CallTracker tracker_;  // last: waits for the uploads first
};

}  // namespace tessera::gateway
