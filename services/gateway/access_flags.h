#pragma once

#include <vector>

#include "common/flags/flags.h"
#include "common/rpc/access.h"

namespace tessera::gateway {

// The rows of who may ask a gateway, for its own binary and for `tessera serve`. `options` outlives
// their parsing.
std::vector<flags::Flag> AccessFlags(rpc::AccessOptions& options);

}  // namespace tessera::gateway
