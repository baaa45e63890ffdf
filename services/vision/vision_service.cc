#include "services/vision/vision_service.h"

#include "services/vision/encode_reactor.h"

namespace tessera::vision {

grpc::ServerBidiReactor<v1::EncodeRequest, v1::EncodeResponse>* VisionService::Encode(
    grpc::CallbackServerContext* context) {
  return new EncodeReactor(parts_, fingerprint_);  // deletes itself
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
