#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ops/handlers.h"

namespace tessera::ops {

struct OpsOptions {
  std::string address = "127.0.0.1:9464";  // host:port; port 0 takes a free one
  // Of a request, from the first moment that it could be sent to its last byte, and of an answer's
  // way out: a connection that takes longer is closed.
  absl::Duration timeout = absl::Seconds(10);
  size_t max_connections = 64;  // one more, and the one that was silent longest is closed
  size_t max_header_bytes = 8192;
};

// The operations port: GET and HEAD of pages.h over HTTP/1.1, for Prometheus, probes and people.
// One thread of its own does everything. Requests with a body are refused. Plain text on purpose:
// bind it to a network that only they reach.
class OpsServer {
 public:
  // Listens at once. What `handlers` use outlives the result. INVALID_ARGUMENT: BAD_OPTION when the
  // address is none, ADDRESS_UNAVAILABLE when it cannot be had (ports are not shared).
  static absl::StatusOr<std::unique_ptr<OpsServer>> Start(OpsOptions options, Handlers handlers);
  // Closes every connection. No handler runs afterwards. Not from a handler.
  ~OpsServer();
  OpsServer(const OpsServer&) = delete;
  OpsServer& operator=(const OpsServer&) = delete;

  int port() const;

 private:
  struct Listener;
  explicit OpsServer(std::unique_ptr<Listener> listener);
  std::unique_ptr<Listener> listener_;
};

}  // namespace tessera::ops
