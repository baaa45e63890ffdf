#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include "common/base/clock.h"
#include "common/rpc/request.h"
#include "services/gateway/ahead_prefill.h"
#include "services/gateway/call_tracker.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/gateway_options.h"
#include "services/gateway/image_resolver.h"
#include "services/gateway/inflight_limit.h"
#include "services/gateway/upload.h"
#include "tessera/v1/gateway.grpc.pb.h"

namespace tessera::gateway {

// What every upload uses; all outlive the uploads.
struct UploadParts {
  const GatewayOptions& options;
  ImageResolver& resolver;
  base::Clock& clock;
  const GatewayMetrics& metrics;
  UploadBudget& budget;
  InflightLimit& limit;
  CallTracker& tracker;
  std::shared_ptr<AheadPrefill> ahead;
};

// One upload. Whoever is first of the last byte, an error and the deadline ends it, and leaves
// `limit`, which it has entered. Owns itself until gRPC and its alarm have let go, which may be
// later than its server's shutdown; `tracker` waits for that.
class UploadReactor final : public grpc::ServerReadReactor<v1::UploadImageRequest> {
 public:
  UploadReactor(UploadParts parts, rpc::RequestContext request, absl::Time arrival,
                std::string tenant, v1::UploadImageResponse& response);

  void OnReadDone(bool ok) override;
  void OnCancel() override { cancelled_.store(true); }
  void OnDone() override;

 private:
  ~UploadReactor() override = default;
  void OnAlarm(bool due);
  void ReadNext();
  void End(const absl::Status& status);
  void Release();

  const CallTracker::Token token_;  // first: goes last
  const UploadParts parts_;
  const rpc::RequestContext request_;
  const absl::Time arrival_;
  v1::UploadImageResponse& response_;
  Upload upload_;
  v1::UploadImageRequest message_;
  grpc::Alarm alarm_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> ended_{false};
  std::atomic<int> holders_{2};
};

}  // namespace tessera::gateway
