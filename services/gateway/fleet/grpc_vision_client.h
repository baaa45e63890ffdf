#pragma once

#include <grpcpp/channel.h>

#include <memory>

#include "common/base/clock.h"
#include "services/gateway/fleet/vision_client.h"

namespace tessera::gateway {

// VisionClient over gRPC's callback API. `clock` outlives it.
std::unique_ptr<VisionClient> MakeGrpcVisionClient(std::shared_ptr<grpc::Channel> channel,
                                                   const base::Clock& clock);

}  // namespace tessera::gateway
