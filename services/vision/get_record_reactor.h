#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/request.h"
#include "services/vision/vision_service_deps.h"
#include "tessera/v1/vision.grpc.pb.h"

namespace tessera::vision {

// One GetRecord call: the record is looked up and sealed on a thread of `records`, then sent chunk
// by chunk. Its end is one line of the log and one span. Deletes itself when done.
class GetRecordReactor final : public grpc::ServerWriteReactor<v1::GetRecordResponse> {
 public:
  // `deps` and `under_way` outlive the call. RESOURCE_EXHAUSTED with a retry when too many are
  // under way, each of which holds one record's bytes.
  GetRecordReactor(const VisionServiceDeps& deps, std::atomic<int>& under_way,
                   grpc::CallbackServerContext& context, const v1::GetRecordRequest& request);

  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  ~GetRecordReactor() override { --under_way_; }

  void Load();
  void WriteNext();
  void End(absl::Status status);

  const rpc::CallTracker::Token token_;
  const VisionServiceDeps& deps_;
  std::atomic<int>& under_way_;
  const grpc::CallbackServerContext& wire_;  // lives until OnDone
  const absl::Time arrival_;
  const rpc::RequestContext context_;
  const std::string key_;
  std::string record_;
  size_t sent_bytes_ = 0;
  v1::GetRecordResponse response_;
  absl::Status status_;  // of the end
};

}  // namespace tessera::vision
