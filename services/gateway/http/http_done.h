#pragma once

#include <functional>

#include "services/gateway/http/http_server.h"

namespace tessera::rpc {
class SpanExporter;
}

namespace tessera::gateway::http {

// For HttpParts::done: one line of the log, and a span, for each chat request that got no further
// than HTTP; GatewayMetrics tells of the others. `spans` outlives the server; it may be null.
std::function<void(const HttpDone&)> TellRefusals(rpc::SpanExporter* spans);

}  // namespace tessera::gateway::http
