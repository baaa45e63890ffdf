#pragma once

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/metrics/metrics.h"
#include "services/gateway/api/gateway_service.h"
#include "services/gateway/fleet/replica_set.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/gateway_options.h"

namespace tessera::gateway {

// Where the other services are.
struct GatewayPeers {
  using Connect = std::function<std::shared_ptr<grpc::Channel>(const std::string& name)>;

  // In this process: one replica of each, without a name, always up.
  static GatewayPeers Local(std::shared_ptr<grpc::Channel> vision,
                            std::shared_ptr<grpc::Channel> decode);
  // Replicas behind addresses, whose load is watched.
  static GatewayPeers Remote(ReplicaSetOptions vision, ReplicaSetOptions decode, Connect connect);

  ReplicaSetOptions vision, decode;
  Connect connect_vision, connect_decode;
  bool watched = false;
  std::function<bool()> given_up = nullptr;  // whether nobody waits for them any more; may be null
};

// Everything of the gateway but its listening port. Any thread.
class GatewayRuntime {
 public:
  // Asks decode what it serves, for up to options.peer_timeout; UNAVAILABLE when no replica of it
  // can be reached. Then vision, for 3 s at most: without it what needs no new picture is answered,
  // and its pictures when it comes. Their rows must be equally wide, else FAILED_PRECONDITION with
  // both widths, or, where it comes later, for each picture. `clock` and `metrics` outlive the
  // runtime.
  static absl::StatusOr<std::unique_ptr<GatewayRuntime>> Create(const GatewayOptions& options,
                                                                GatewayPeers peers,
                                                                base::Clock& clock,
                                                                metrics::Metrics& metrics);

  // What another face, such as HTTP, makes its answers with; all of it lives as long as the
  // runtime.
  ApiDeps api_deps() {
    return {options_,
            {options_, *resolver_, *decode_, clock_, metrics_.requests(), admission_, pace_,
             running_, model_info_.context_tokens()}};
  }

  // Lives as long as the runtime; "tessera.v1.GatewayService".
  grpc::Service* service() { return service_.get(); }
  const v1::GetModelInfoResponse& model_info() const { return model_info_; }

  // New requests are refused from now on; returns when none is left. Those that `timeout` finds end
  // with UNAVAILABLE (DRAINING) and have a second for it.
  void Drain(absl::Duration timeout);

  // Requests under way, uploads too.
  int inflight() { return admission_.inflight(); }
  // For /debug/state: requests, admission and, where there are addresses, replicas.
  base::Json State();
  // Whether some replica of decode takes requests. Without vision what is known is still answered.
  bool DecodeIsUp();
  // Brings gauges up to date.
  void UpdateMetrics() { metrics_.SetInflight(inflight()); }

 private:
  GatewayRuntime(const GatewayOptions& options, base::Clock& clock, metrics::Metrics& metrics)
      : options_(options),
        clock_(clock),
        metrics_(metrics, options.spans),
        known_(options.known_images),
        admission_(options.admission_limits(), clock) {}

  absl::Status Meet(const GatewayPeers& peers);

  const GatewayOptions options_;
  base::Clock& clock_;
  const GatewayMetrics metrics_;
  KnownImages known_;
  RunningRequests running_;  // behind all that keep one alive
  Admission admission_;
  Pace pace_;
  bool watched_ = false;  // replicas have names
  v1::GetModelInfoResponse model_info_;
  std::unique_ptr<ImageResolver> resolver_;  // before the clients, whose last calls still use it
  std::unique_ptr<VisionClient> vision_;
  std::unique_ptr<DecodeClient> decode_;
  // Behind the clients that use them: their ends wait for the calls of those.
  std::unique_ptr<ReplicaSet> vision_replicas_;
  std::unique_ptr<ReplicaSet> decode_replicas_;
  std::unique_ptr<GatewayService> service_;
};

}  // namespace tessera::gateway
