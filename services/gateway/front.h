#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/access.h"
#include "common/rpc/api_keys.h"
#include "common/rpc/server.h"
#include "common/service/process.h"
#include "services/gateway/gateway_runtime.h"
#include "services/gateway/http/http_server.h"

namespace tessera::gateway {

struct FrontOptions {
  std::string grpc_address;  // empty: reachable by InProcessChannel only
  http::HttpOptions http;    // its certificates are those of `access`
  rpc::AccessOptions access;
  std::optional<bool> reflection;  // absent: where no keys are asked for
  int max_message_bytes = 32 << 20;

  // Before anything is loaded: INVALID_ARGUMENT, BAD_OPTION for an address that is taken, or open
  // to strangers, or options that cannot be.
  absl::Status Check() const;
};

// Outlives the front.
struct FrontDeps {
  GatewayRuntime& gateway;
  rpc::ApiKeys& keys;
  service::Process& process;
};

// What clients reach of a gateway: its gRPC server and its HTTP port. One thread.
class Front {
 public:
  // INVALID_ARGUMENT, BAD_OPTION: an address that cannot be had, certificates.
  static absl::StatusOr<std::unique_ptr<Front>> Start(const FrontOptions& options,
                                                      const FrontDeps& deps);

  int grpc_port() const { return grpc_->port(); }
  int http_port() const { return http_ ? http_->port() : 0; }  // 0: none
  std::shared_ptr<grpc::Channel> InProcessChannel() { return grpc_->InProcessChannel(); }
  // What health says over gRPC is what the process says now; to be called once a second, and first
  // when it is loaded: until then it is not ready.
  void FollowHealth() { grpc_->SetReady(deps_.process.Health().ok()); }

  // Not ready at once; HTTP answers end their connections. After `delay` both ports close for what
  // is new: idle connections of HTTP end, those of gRPC are told (GOAWAY), so that clients go
  // elsewhere. What runs is finished within `timeout`.
  void Drain(absl::Duration timeout, absl::Duration delay);

 private:
  explicit Front(const FrontDeps& deps) : deps_(deps) {}

  const FrontDeps deps_;
  std::unique_ptr<rpc::Server> grpc_;
  std::unique_ptr<http::HttpServer> http_;
};

}  // namespace tessera::gateway
