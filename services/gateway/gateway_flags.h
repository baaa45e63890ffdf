#pragma once

#include <vector>

#include "common/flags/flags.h"
#include "services/gateway/gateway_options.h"

namespace tessera::gateway {

// The rows of the gateway, for its own binary and for `tessera serve`. `options` outlives their
// parsing.
std::vector<flags::Flag> GatewayFlags(GatewayOptions& options);

}  // namespace tessera::gateway
