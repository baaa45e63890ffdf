#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "common/rpc/call_limits.h"
#include "common/rpc/channel.h"
#include "common/rpc/listener.h"
#include "common/rpc/tls/tls.h"

namespace tessera::rpc {

struct ServerOptions {
  // "host:port", port 0 takes a free one; empty: reachable by InProcessChannel only.
  std::string address;
  int max_receive_bytes = 32 << 20;
  bool reflection = false;              // grpc.reflection.v1alpha
  metrics::Metrics* metrics = nullptr;  // outlives the server; nullptr: calls are not counted
  // How often a client may ask over a silent connection whether it lives (channel.h).
  absl::Duration keepalive_taken = kKeepaliveTaken;
  absl::Duration connection_idle = absl::Minutes(1);  // one without a call for so long is ended
  // TLS of the address where it is not empty (ServerTls); the in-process channel has none.
  TlsFiles tls = {};
  bool ready = true;  // what health says of readiness from the first connection on
};

// A gRPC server with grpc.health.v1 for "", "liveness", "readiness" and each service's full name.
// A request that cannot be parsed is INTERNAL (bad_message.h), a compressed one UNIMPLEMENTED.
// Tolerates client keepalive of 30 s; connections live 10 minutes plus grace. Any thread.
class Server {
 public:
  // Starts at once. `services` outlive the server. INVALID_ARGUMENT when the address cannot
  // be had: a taken port is an error (port sharing is off); or for `tls`, with the flag.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, absl::Span<grpc::Service* const> services,
      const std::vector<std::string>& service_names);
  ~Server();

  // 0 without an address.
  int port() const { return listener_ == nullptr ? 0 : listener_->port(); }
  // For the services of one process: the same calls over a private pair of TCP sockets. REQUIRES:
  // not shut down. The channel does not outlive the server's Shutdown in use: calls are
  // UNAVAILABLE.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Readiness, "" and the services' names; liveness stays as it is. Nothing after Shutdown.
  void SetReady(bool ready);
  // Not ready, no new calls; running ones are cancelled at `deadline` from now. Returns when all
  // have ended. Idempotent.
  void Shutdown(absl::Duration deadline);
  // Cancels what is running, as the deadline of a Shutdown that is under way on another thread.
  void EndCalls();

 private:
  Server() = default;
  std::unique_ptr<ServerTls> tls_;  // outlives server_
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<Listener> listener_;  // feeds connections_; null: no address
  std::unique_ptr<grpc::Server> server_;
  base::Mutex end_;  // held while server_ goes, and by EndCalls
  std::vector<std::string> service_names_;
};

}  // namespace tessera::rpc
