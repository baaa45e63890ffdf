#pragma once

#include <grpcpp/channel.h>

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/metrics/metrics.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/gateway_options.h"
#include "services/gateway/gateway_service.h"

namespace tessera::gateway {

// Everything of the gateway but its listening port. Any thread.
class GatewayRuntime {
 public:
  // Asks vision and decode what they serve (waits up to 10 s for each): their rows must be equally
  // wide, else FAILED_PRECONDITION with both widths. `clock` and `metrics` outlive the runtime.
  static absl::StatusOr<std::unique_ptr<GatewayRuntime>> Create(
      const GatewayOptions& options, std::shared_ptr<grpc::Channel> vision,
      std::shared_ptr<grpc::Channel> decode, base::Clock& clock, metrics::Metrics& metrics);

  // Lives as long as the runtime; "tessera.v1.GatewayService".
  grpc::Service* service() { return service_.get(); }
  const v1::GetModelInfoResponse& model_info() const { return model_info_; }

  // New requests are refused from now on; returns when none is left or `timeout` has passed.
  void Drain(absl::Duration timeout);

  // Requests under way, uploads too.
  int inflight() { return limit_.inflight(); }
  // Brings gauges up to date.
  void UpdateMetrics() { metrics_.SetInflight(inflight()); }

 private:
  GatewayRuntime(const GatewayOptions& options, base::Clock& clock, metrics::Metrics& metrics)
      : options_(options),
        clock_(clock),
        metrics_(metrics),
        known_(options.known_images),
        limit_(options.max_requests) {}

  const GatewayOptions options_;
  base::Clock& clock_;
  const GatewayMetrics metrics_;
  KnownImages known_;
  InflightLimit limit_;
  v1::GetModelInfoResponse model_info_;
  std::unique_ptr<ImageResolver> resolver_;  // before the clients, whose last calls still use it
  std::unique_ptr<VisionClient> vision_;
  std::unique_ptr<DecodeClient> decode_;
  std::unique_ptr<GatewayService> service_;
};

}  // namespace tessera::gateway
