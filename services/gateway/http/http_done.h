#pragma once

#include <functional>

#include "services/gateway/answer/request_metrics.h"
#include "services/gateway/http/http_deps.h"

namespace tessera::rpc {
class SpanExporter;
}

namespace tessera::gateway::http {

// For HttpDeps::done: each chat request that got no further than HTTP is counted, and has one line
// of the log and a span; RequestMetrics tells of the others. Both outlive the server; `spans` may
// be null.
std::function<void(const HttpDone&)> TellRefusals(const RequestMetrics& metrics,
                                                  rpc::SpanExporter* spans);

}  // namespace tessera::gateway::http
