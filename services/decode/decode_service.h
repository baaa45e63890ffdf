#pragma once

#include <grpcpp/grpcpp.h>

#include "common/base/timers.h"
#include "services/decode/call_deps.h"
#include "tessera/v1/decode.grpc.pb.h"

namespace tessera::decode {

// tessera.v1.DecodeService: the wire in front of the engine, nothing else.
class DecodeService final : public v1::DecodeService::CallbackService {
 public:
  // What `deps` names outlives the service; `info` is what GetInfo answers; `waiting_limit`:
  // requests that may wait; `fit`: the model passes its canary, or has none.
  DecodeService(const CallDeps& deps, v1::DecodeServiceGetInfoResponse info, uint32_t waiting_limit,
                bool fit = true);

  grpc::ServerBidiReactor<v1::DecodeServiceGenerateRequest, v1::DecodeServiceGenerateResponse>*
  Generate(grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* Prefill(grpc::CallbackServerContext* context,
                                    const v1::DecodeServicePrefillRequest* request,
                                    v1::DecodeServicePrefillResponse* response) override;

  grpc::ServerWriteReactor<v1::DecodeServiceWatchLoadResponse>* WatchLoad(
      grpc::CallbackServerContext* context,
      const v1::DecodeServiceWatchLoadRequest* request) override;

  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::DecodeServiceGetInfoRequest* request,
                                    v1::DecodeServiceGetInfoResponse* response) override;

  // False where calls are left at `deadline`: answers that are made and not yet read.
  bool AwaitCalls(absl::Time deadline) { return deps_.calls->AwaitNone(deps_.clock, deadline); }

 private:
  void FillLoad(v1::DecodeServiceWatchLoadResponse& load) const;

  const CallDeps deps_;
  const v1::DecodeServiceGetInfoResponse info_;
  const uint32_t waiting_limit_;
  const bool fit_;
  base::Timers timers_;  // of WatchLoad
};

}  // namespace tessera::decode
