#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "services/gateway/answer.h"
#include "services/gateway/gateway_options.h"
#include "services/gateway/image_resolver.h"
#include "services/gateway/upload.h"
#include "tessera/v1/gateway.grpc.pb.h"

namespace tessera::gateway {

// Counts requests under way against a limit. Any thread.
class InflightLimit {
 public:
  explicit InflightLimit(int limit) : limit_(limit) {}

  // OK takes a place that Leave gives back. RESOURCE_EXHAUSTED with RetryInfo when all are taken,
  // UNAVAILABLE with RetryInfo while draining.
  absl::Status Enter();
  void Leave();
  // Refuses from now on, then waits until all have left or `deadline` has passed.
  void Drain(base::Clock& clock, absl::Time deadline);

 private:
  const int limit_;
  base::Mutex mutex_;
  base::CondVar left_;
  int inflight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

// tessera.v1.GatewayService: translates between protos and Answer, nothing else. Callback API.
class GatewayService final : public v1::GatewayService::CallbackService {
 public:
  GatewayService(const Answer::Parts& parts, InflightLimit& limit,
                 v1::GetModelInfoResponse model_info)
      : parts_(parts),
        limit_(limit),
        model_info_(std::move(model_info)),
        uploads_(parts.options.max_upload_bytes) {}
  // REQUIRES: the server that served it has been shut down. Waits for the alarms of its uploads.
  ~GatewayService() override { limit_.Drain(parts_.clock, absl::InfiniteFuture()); }

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
  const Answer::Parts parts_;
  InflightLimit& limit_;
  const v1::GetModelInfoResponse model_info_;
  UploadBudget uploads_;
};

}  // namespace tessera::gateway
