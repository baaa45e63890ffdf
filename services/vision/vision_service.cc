#include "services/vision/vision_service.h"

#include "common/rpc/watch_reactor.h"
#include "services/vision/encode_reactor.h"
#include "services/vision/get_record_reactor.h"

namespace tessera::vision {

VisionService::VisionService(VisionServiceDeps deps) : deps_(std::move(deps)) {
  // Generated code knows its own types of messages alone; handlers take others.
  constexpr int kEncode = 0;  // the first method in protos/tessera/v1/vision.proto
  using grpc::internal::CallbackBidiHandler;
  MarkMethodRawCallback(kEncode, new CallbackBidiHandler<EncodeRequest, v1::EncodeResponse>(
                                     [this](grpc::CallbackServerContext* context) {
                                       return new EncodeReactor(deps_, fingerprint_,
                                                                *context);  // deletes itself
                                     }));
}

grpc::ServerWriteReactor<v1::GetRecordResponse>* VisionService::GetRecord(
    grpc::CallbackServerContext* context, const v1::GetRecordRequest* request) {
  return new GetRecordReactor(deps_, records_under_way_, *context, *request);  // deletes itself
}

grpc::ServerWriteReactor<v1::VisionServiceWatchLoadResponse>* VisionService::WatchLoad(
    grpc::CallbackServerContext*, const v1::VisionServiceWatchLoadRequest* request) {
  return rpc::WatchReactor<v1::VisionServiceWatchLoadResponse>::Start(
      {timers_, deps_.clock}, rpc::WatchInterval(request->interval_milliseconds()),
      [this](v1::VisionServiceWatchLoadResponse& load) {
        const PipelineStats stats = deps_.pipeline.stats();
        load.set_draining(stats.draining);
        load.set_pending_images(static_cast<uint32_t>(stats.pending_images));
        load.set_pending_limit(deps_.pending_limit);
        load.set_broken(!deps_.fit || !stats.health.ok());
      });
}

grpc::ServerUnaryReactor* VisionService::GetInfo(grpc::CallbackServerContext* context,
                                                 const v1::VisionServiceGetInfoRequest* request,
                                                 v1::VisionServiceGetInfoResponse* response) {
  *response = deps_.info;
  response->set_vision_fingerprint(fingerprint_);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tessera::vision
