#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "common/base/timers.h"
#include "services/vision/encoder/identity.h"
#include "services/vision/vision_service_deps.h"
#include "tessera/v1/vision.grpc.pb.h"

namespace tessera::vision {

// tessera.v1.VisionService: protocol buffers to the pipeline and back. No call blocks a thread of
// gRPC. Errors carry the reasons of services/vision/image and of the pipeline, and:
//   OFFER_INVALID      the first message is no offer, its digest has not 32 bytes, or more bytes
//                      are held than are yet to come
//   SIZE_MISMATCH      more or fewer bytes than offered
//   DIGEST_MISMATCH    other bytes than offered
//   IMAGE_QUALITY      the gate refuses the picture, known or new
class VisionService final : public v1::VisionService::CallbackService {
 public:
  explicit VisionService(VisionServiceDeps deps);

  grpc::ServerWriteReactor<v1::GetRecordResponse>* GetRecord(
      grpc::CallbackServerContext* context, const v1::GetRecordRequest* request) override;
  grpc::ServerWriteReactor<v1::VisionServiceWatchLoadResponse>* WatchLoad(
      grpc::CallbackServerContext* context,
      const v1::VisionServiceWatchLoadRequest* request) override;
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::VisionServiceGetInfoRequest* request,
                                    v1::VisionServiceGetInfoResponse* response) override;

  // False where calls are left at `deadline`: rows that are made and not yet read. Those who watch
  // the load are none of them.
  bool AwaitCalls(absl::Time deadline) { return deps_.calls->AwaitNone(deps_.clock, deadline); }

 private:
  const VisionServiceDeps deps_;
  const std::string fingerprint_ = FingerprintOf(deps_.identity, deps_.gate);
  std::atomic<int> records_under_way_{0};
  base::Timers timers_{deps_.clock};  // of WatchLoad
};

}  // namespace tessera::vision
