#pragma once

#include <vector>

#include "common/flags/flags.h"
#include "services/gateway/http/http_options.h"

namespace tessera::gateway::http {

// The rows of the HTTP port, for the gateway's own binary and for `tessera serve`. `options`
// outlives their parsing.
std::vector<flags::Flag> HttpFlags(HttpOptions& options);

}  // namespace tessera::gateway::http
