#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/rpc/bounded.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/request.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/answer/request_metrics.h"
#include "services/gateway/answer/running_requests.h"
#include "services/gateway/api/api_options.h"
#include "services/gateway/api/ended_call.h"
#include "services/gateway/api/upload.h"
#include "services/gateway/pictures/ahead_prefill.h"
#include "services/gateway/pictures/image_resolver.h"
#include "tessera/v1/gateway.grpc.pb.h"

namespace tessera::gateway {

// What every upload uses; all outlive the uploads.
struct UploadDeps {
  const ApiOptions& options;
  ImageResolver& resolver;
  base::Clock& clock;
  const RequestMetrics& metrics;
  ByteBudget& budget;
  base::Timers& timers;
  rpc::CallTracker& tracker;
  RunningRequests& running;
  std::shared_ptr<AheadPrefill> ahead;
};

// One upload. Whoever is first of the last byte, an error, the deadline, an abort and the client's
// leaving ends it, and gives its place back. Owns itself until OnDone; `tracker` waits for that.
class UploadReactor final : public grpc::ServerReadReactor<rpc::Bounded<v1::UploadImageRequest>>,
                            public RunningRequest,
                            public std::enable_shared_from_this<UploadReactor> {
 public:
  // The reactor of a new call.
  static UploadReactor* Start(UploadDeps deps, AdmittedCall call,
                              grpc::CallbackServerContext& context,
                              v1::UploadImageResponse& response);

  void OnReadDone(bool ok) override;
  void OnCancel() override { End(Left()); }
  void OnDone() override;
  void Abort(const absl::Status& status) override { End(status); }

 private:
  UploadReactor(UploadDeps deps, AdmittedCall call, grpc::CallbackServerContext& context,
                v1::UploadImageResponse& response);
  static absl::Status Left() { return absl::CancelledError("the upload was cancelled"); }
  void ReadNext();
  void End(const absl::Status& status);

  const rpc::CallTracker::Token token_;  // first: goes last
  std::shared_ptr<UploadReactor> self_;  // until OnDone
  const UploadDeps deps_;
  const grpc::CallbackServerContext& wire_;
  const rpc::RequestContext request_;
  const absl::Time arrival_;
  Admission::Place place_;  // by whoever ends it
  EndedCall ended_call_;    // its end by whoever ends it
  v1::UploadImageResponse& response_;
  Upload upload_;
  rpc::Bounded<v1::UploadImageRequest> message_;
  base::Timers::Id expiry_ = 0;  // by Start and OnDone
  std::atomic<bool> ended_{false};
};

}  // namespace tessera::gateway
