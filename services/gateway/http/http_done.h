#pragma once

#include <functional>

#include "services/gateway/gateway_metrics.h"
#include "services/gateway/http/http_server.h"

namespace tessera::rpc {
class SpanExporter;
}

namespace tessera::gateway::http {

// For HttpParts::done: each chat request that got no further than HTTP is counted, and has one line
// of the log and a span; GatewayMetrics tells of the others. Both outlive the server; `spans` may
// be null.
std::function<void(const HttpDone&)> TellRefusals(const GatewayMetrics& metrics,
                                                  rpc::SpanExporter* spans);

}  // namespace tessera::gateway::http
