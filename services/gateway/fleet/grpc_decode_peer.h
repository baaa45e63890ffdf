#pragma once

#include <grpcpp/channel.h>

#include <memory>

#include "common/base/clock.h"
#include "services/gateway/fleet/decode_peer.h"

namespace tessera::gateway {

// DecodePeer over gRPC's callback API. `clock` outlives it.
std::unique_ptr<DecodePeer> MakeGrpcDecodePeer(std::shared_ptr<grpc::Channel> channel,
                                               const base::Clock& clock);

}  // namespace tessera::gateway
