#pragma once

#include <cstdint>

#include "common/metrics/metrics.h"
#include "services/gateway/answer/request_metrics.h"

namespace tessera::gateway {

// All series of this service. Any thread.
class GatewayMetrics {
 public:
  // Both outlive it; `spans` may be null.
  explicit GatewayMetrics(metrics::Metrics& metrics, rpc::SpanExporter* spans = nullptr);

  const RequestMetrics& requests() const { return requests_; }
  // Requests under way.
  void SetInflight(int64_t requests) const { inflight_.Set(static_cast<double>(requests)); }

 private:
  const RequestMetrics requests_;
  const metrics::Gauge inflight_;
};

}  // namespace tessera::gateway
