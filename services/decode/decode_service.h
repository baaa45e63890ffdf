#pragma once

#include <grpcpp/grpcpp.h>

#include "services/decode/generate_call.h"
#include "tessera/v1/decode.grpc.pb.h"

namespace tessera::decode {

// tessera.v1.DecodeService: the wire in front of the engine, nothing else.
class DecodeService final : public v1::DecodeService::CallbackService {
 public:
  // What `parts` names outlives the service; `info` is what GetInfo answers.
  DecodeService(const GenerateParts& parts, v1::DecodeServiceGetInfoResponse info);

  grpc::ServerBidiReactor<v1::DecodeServiceGenerateRequest, v1::DecodeServiceGenerateResponse>*
  Generate(grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* Prefill(grpc::CallbackServerContext* context,
                                    const v1::DecodeServicePrefillRequest* request,
                                    v1::DecodeServicePrefillResponse* response) override;

  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::DecodeServiceGetInfoRequest* request,
                                    v1::DecodeServiceGetInfoResponse* response) override;

 private:
  const GenerateParts parts_;
  const v1::DecodeServiceGetInfoResponse info_;
};

}  // namespace tessera::decode
