#include "services/decode/decode_service.h"

#include <utility>

#include "services/decode/prefill_call.h"

namespace tessera::decode {

DecodeService::DecodeService(const GenerateParts& parts, v1::DecodeServiceGetInfoResponse info)
    : parts_(parts), info_(std::move(info)) {}

grpc::ServerBidiReactor<v1::DecodeServiceGenerateRequest, v1::DecodeServiceGenerateResponse>*
DecodeService::Generate(grpc::CallbackServerContext* context) {
  return GenerateCall::Start(parts_, *context);
}

grpc::ServerUnaryReactor* DecodeService::Prefill(grpc::CallbackServerContext* context,
                                                 const v1::DecodeServicePrefillRequest* request,
                                                 v1::DecodeServicePrefillResponse* response) {
  return PrefillCall::Start(parts_, *context, *request, *response);
}

grpc::ServerUnaryReactor* DecodeService::GetInfo(grpc::CallbackServerContext* context,
                                                 const v1::DecodeServiceGetInfoRequest*,
                                                 v1::DecodeServiceGetInfoResponse* response) {
  *response = info_;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tessera::decode
