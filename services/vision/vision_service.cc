#include "services/vision/vision_service.h"

#include "common/rpc/watch_reactor.h"
#include "services/vision/encode_reactor.h"
#include "services/vision/get_record_reactor.h"

namespace tessera::vision {

absl::Status CallerGone() { return absl::CancelledError("the caller is gone"); }

grpc::ServerBidiReactor<v1::EncodeRequest, v1::EncodeResponse>* VisionService::Encode(
    grpc::CallbackServerContext* context) {
  return new EncodeReactor(parts_, fingerprint_, *context);  // deletes itself
}

grpc::ServerWriteReactor<v1::GetRecordResponse>* VisionService::GetRecord(
    grpc::CallbackServerContext* context, const v1::GetRecordRequest* request) {
  return new GetRecordReactor(parts_, records_under_way_, *context, *request);  // deletes itself
}

grpc::ServerWriteReactor<v1::VisionServiceWatchLoadResponse>* VisionService::WatchLoad(
    grpc::CallbackServerContext*, const v1::VisionServiceWatchLoadRequest* request) {
  return rpc::WatchReactor<v1::VisionServiceWatchLoadResponse>::Start(
      {timers_, parts_.clock}, rpc::WatchInterval(request->interval_milliseconds()),
      [this](v1::VisionServiceWatchLoadResponse& load) {
        const PipelineStats stats = parts_.pipeline.stats();
        load.set_draining(stats.draining);
        load.set_pending_images(static_cast<uint32_t>(stats.pending_images));
        load.set_pending_limit(parts_.pending_limit);
        load.set_broken(!parts_.fit || !stats.health.ok());
      });
}

grpc::ServerUnaryReactor* VisionService::GetInfo(grpc::CallbackServerContext* context,
                                                 const v1::VisionServiceGetInfoRequest* request,
                                                 v1::VisionServiceGetInfoResponse* response) {
  *response = parts_.info;
  response->set_vision_fingerprint(fingerprint_);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tessera::vision
