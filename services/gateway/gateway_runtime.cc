#include "services/gateway/gateway_runtime.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "services/gateway/grpc_decode_client.h"
#include "services/gateway/grpc_vision_client.h"
#include "tessera/v1/decode.grpc.pb.h"
#include "tessera/v1/vision.grpc.pb.h"

namespace tessera::gateway {
namespace {

void PrepareInfoCall(grpc::ClientContext& context) {
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
}

absl::StatusOr<v1::VisionServiceGetInfoResponse> VisionInfo(
    const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  PrepareInfoCall(context);
  v1::VisionServiceGetInfoResponse info;
  const grpc::Status status = v1::VisionService::NewStub(channel)->GetInfo(&context, {}, &info);
  if (!status.ok()) return base::Annotate(rpc::FromGrpc(status), "asking the vision service");
  return info;
}

absl::StatusOr<v1::DecodeServiceGetInfoResponse> DecodeInfo(
    const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  PrepareInfoCall(context);
  v1::DecodeServiceGetInfoResponse info;
  const grpc::Status status = v1::DecodeService::NewStub(channel)->GetInfo(&context, {}, &info);
  if (!status.ok()) return base::Annotate(rpc::FromGrpc(status), "asking the decode service");
  return info;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GatewayRuntime>> GatewayRuntime::Create(
    const GatewayOptions& options, std::shared_ptr<grpc::Channel> vision,
    std::shared_ptr<grpc::Channel> decode, base::Clock& clock, metrics::Metrics& metrics) {
  RETURN_IF_ERROR(options.Validate());
  ASSIGN_OR_RETURN(const v1::VisionServiceGetInfoResponse seen, VisionInfo(vision));
  ASSIGN_OR_RETURN(const v1::DecodeServiceGetInfoResponse read, DecodeInfo(decode));
  if (seen.width() != read.width()) {
    return base::Error(
        absl::StatusCode::kFailedPrecondition, "WIDTH_MISMATCH",
        absl::StrCat("vision makes rows of ", seen.width(), " columns, decode reads rows of ",
                     read.width(), ": the two serve different models"));
  }
  auto runtime = std::unique_ptr<GatewayRuntime>(new GatewayRuntime(options, clock, metrics));
  v1::GetModelInfoResponse& info = runtime->model_info_;
  info.set_model(options.model_name);
  info.set_family(read.family());
  info.set_context_tokens(read.context_tokens());
  info.set_rows_per_image(seen.rows_per_image());
  info.set_kv_cache_tokens(read.kv_cache_tokens());
  info.set_vision_device(seen.device());
  info.set_decode_device(read.device());
  runtime->vision_ = MakeGrpcVisionClient(std::move(vision), clock);
  runtime->decode_ = MakeGrpcDecodeClient(std::move(decode), clock);
  runtime->resolver_ = std::make_unique<ImageResolver>(*runtime->vision_, runtime->known_,
                                                       seen.vision_fingerprint());
  runtime->service_ =
      std::make_unique<GatewayService>(Answer::Parts{runtime->options_, *runtime->resolver_,
                                                     *runtime->decode_, clock, runtime->metrics_},
                                       runtime->limit_, info);
  return runtime;
}

void GatewayRuntime::Drain(absl::Duration timeout) {
  limit_.Drain(clock_, clock_.Now() + timeout);
  service_->StopAhead();
}

}  // namespace tessera::gateway
