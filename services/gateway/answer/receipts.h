#pragma once

#include <string>
#include <vector>

#include "services/gateway/fleet/decode_client.h"
#include "services/gateway/pictures/image_resolver.h"
#include "tessera/v1/decode.pb.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::gateway {

// The times that the gateway itself saw, in seconds.
struct GatewayTimes {
  double queue = 0;        // waiting for room in decode
  double first_token = 0;  // arrival to first piece
  double total = 0;        // arrival to end
};

// Puts together what vision (one per picture), decode and gateway measured. Stages of several
// pictures overlap, so each counts its longest. A picture's tier is decode's where it found the
// rows without vision's work for this request, else COMPUTED.
v1::GenerateResponse MakeResponse(const v1::DecodeEnd& end,
                                  const std::vector<ResolvedImage>& images,
                                  const GatewayTimes& times, const Routed& by);

}  // namespace tessera::gateway
