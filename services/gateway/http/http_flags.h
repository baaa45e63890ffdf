#pragma once

#include <vector>

#include "common/flags/flags.h"
#include "common/rpc/access.h"
#include "services/gateway/http/http_server.h"

namespace tessera::gateway::http {

// The rows of the HTTP port, for the gateway's own binary and for `tessera serve`. `options`
// outlives their parsing.
std::vector<flags::Flag> HttpFlags(HttpOptions& options);

// The certificates of gRPC are those of HTTP, too.
void ApplyAccess(const rpc::AccessOptions& access, HttpOptions& options);

}  // namespace tessera::gateway::http
