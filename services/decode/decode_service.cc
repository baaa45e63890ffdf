#include "services/decode/decode_service.h"

#include <utility>

#include "common/rpc/watch_reactor.h"
#include "services/decode/generate_reactor.h"
#include "services/decode/prefill_reactor.h"

namespace tessera::decode {

DecodeService::DecodeService(const CallDeps& deps, v1::DecodeServiceGetInfoResponse info,
                             uint32_t waiting_limit, bool fit)
    : deps_(deps),
      info_(std::move(info)),
      waiting_limit_(waiting_limit),
      fit_(fit),
      timers_(deps.clock) {}

grpc::ServerBidiReactor<v1::DecodeServiceGenerateRequest, v1::DecodeServiceGenerateResponse>*
DecodeService::Generate(grpc::CallbackServerContext* context) {
  return GenerateReactor::Start(deps_, *context);
}

grpc::ServerUnaryReactor* DecodeService::Prefill(grpc::CallbackServerContext* context,
                                                 const v1::DecodeServicePrefillRequest* request,
                                                 v1::DecodeServicePrefillResponse* response) {
  return PrefillReactor::Start(deps_, *context, *request, *response);
}

grpc::ServerWriteReactor<v1::DecodeServiceWatchLoadResponse>* DecodeService::WatchLoad(
    grpc::CallbackServerContext*, const v1::DecodeServiceWatchLoadRequest* request) {
  return rpc::WatchReactor<v1::DecodeServiceWatchLoadResponse>::Start(
      {timers_, deps_.clock}, rpc::WatchInterval(request->interval_milliseconds()),
      [this](v1::DecodeServiceWatchLoadResponse& load) { FillLoad(load); });
}

void DecodeService::FillLoad(v1::DecodeServiceWatchLoadResponse& load) const {
  const EngineStats stats = deps_.engine.stats();
  load.set_draining(deps_.engine.draining());
  load.set_full(deps_.engine.full());
  load.set_broken(!fit_ || !deps_.engine.health().ok());
  load.set_blocks_total(static_cast<uint32_t>(stats.blocks_total));
  load.set_blocks_free(
      static_cast<uint32_t>(stats.blocks_total - stats.blocks_used + stats.blocks_ahead));
  load.set_block_tokens(static_cast<uint32_t>(deps_.engine.block_size()));
  load.set_running(static_cast<uint32_t>(stats.running));
  load.set_waiting(static_cast<uint32_t>(stats.waiting));
  load.set_waiting_limit(waiting_limit_);
  load.set_requests_ended(static_cast<uint64_t>(stats.finished_stop + stats.finished_length +
                                                stats.finished_abort + stats.finished_error));
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
