#include "services/gateway/gateway_metrics.h"

#include "common/metrics/names.h"

namespace tessera::gateway {

GatewayMetrics::GatewayMetrics(metrics::Metrics& metrics, rpc::SpanExporter* spans)
    : requests_(metrics, spans), inflight_(metrics.GetGauge(metrics::kGatewayInflightRequests)) {}

}  // namespace tessera::gateway
