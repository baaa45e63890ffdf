#pragma once

#include <vector>

#include "common/flags/flags.h"
#include "common/rpc/access.h"
#include "services/gateway/gateway_options.h"

namespace tessera::gateway {

// The rows of the gateway, and of who may ask it, for its own binary and for `tessera serve`.
// `options` outlives their parsing.
std::vector<flags::Flag> GatewayFlags(GatewayOptions& options);
std::vector<flags::Flag> AccessFlags(rpc::AccessOptions& options);

}  // namespace tessera::gateway
