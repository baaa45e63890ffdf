#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/compute_pool.h"
#include "common/base/json.h"
#include "common/ops/ops_server.h"
#include "common/rpc/access.h"
#include "common/rpc/api_keys.h"
#include "common/rpc/server.h"
#include "common/rpc/trace/span_exporter.h"
#include "common/service/process.h"
#include "common/store/memory_store.h"
#include "common/store/set/store_set.h"
#include "services/decode/decode_runtime.h"
#include "services/gateway/front.h"
#include "services/gateway/gateway_runtime.h"
#include "services/vision/vision_runtime.h"

namespace tessera::tools {

struct LocalServerOptions {
  std::string model_dir;
  std::string model_name;          // empty: the directory's name
  std::string grpc_address;        // empty: no port, in-process channel only
  std::string ops_address;         // of the operations port; empty: none
  int threads = 0;                 // of the compute pool; 0: what the machine grants
  std::optional<bool> reflection;  // absent: where there are no keys
  rpc::AccessOptions access;       // of gRPC and HTTP
  gateway::http::HttpOptions http = {.address = ""};  // empty: none; TLS is set from access
  store::StoreSetOptions store;
  rpc::TraceOptions traces;           // of all three services
  std::string image_handle_key_file;  // empty: a fresh key, handles end with the process
  vision::VisionOptions vision;       // model_dir is set from above
  decode::DecodeOptions decode;
  gateway::GatewayOptions gateway;
};

// The three services in one process, meeting only in their gRPC interfaces over in-process
// channels, with one store and one compute pool.
class LocalServer {
 public:
  // Loads the model and listens. Errors name the flag, key or tensor.
  static absl::StatusOr<std::unique_ptr<LocalServer>> Start(LocalServerOptions options);
  ~LocalServer();

  // To the gateway, without a socket.
  std::shared_ptr<grpc::Channel> Channel() { return front_->InProcessChannel(); }
  int http_port() const { return front_->http_port(); }  // 0: none
  int port() const { return front_->grpc_port(); }
  // 0: none.
  int ops_port() const { return ops_server_ ? ops_server_->port() : 0; }
  const v1::GetModelInfoResponse& model_info() const { return gateway_->model_info(); }
  const vision::VisionRuntime& vision() const { return *vision_; }
  const decode::DecodeRuntime& decode() const { return *decode_; }
  const store::MemoryStore& store() const { return stores_->local(); }
  // "ready", or why it never will be: its canary has failed.
  std::string ReadyLine() const { return process_->state().ReadyLine(); }
  // All series of the process, in Prometheus' text form. Any thread.
  std::string MetricsText();
  int threads() const { return pool_->threads(); }

  // As Front has it.
  void FollowHealth() { front_->FollowHealth(); }
  // Readiness off; after `delay` new requests refused, running ones finished within `timeout`, then
  // all stops. Idempotent.
  void Drain(absl::Duration timeout, absl::Duration delay = absl::ZeroDuration());

 private:
  LocalServer() = default;
  absl::Status Load(const LocalServerOptions& options);
  service::Pages MakePages();
  void UpdateMetrics();
  base::Json State() const;
  void TellCanary();

  bool drained_ = false;
  // In the order of birth; what is below uses what is above.
  std::unique_ptr<service::Process> process_;
  std::unique_ptr<rpc::ApiKeys> keys_;
  std::unique_ptr<base::ComputePool> pool_;
  std::unique_ptr<store::StoreSet> stores_;
  std::unique_ptr<vision::VisionRuntime> vision_;
  std::unique_ptr<decode::DecodeRuntime> decode_;
  std::unique_ptr<rpc::Server> vision_server_;
  std::unique_ptr<rpc::Server> decode_server_;
  std::unique_ptr<gateway::GatewayRuntime> gateway_;
  std::unique_ptr<gateway::Front> front_;
  std::unique_ptr<ops::OpsServer> ops_server_;
};

}  // namespace tessera::tools
