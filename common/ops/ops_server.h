#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/ops/handlers.h"
#include "common/ops/ops_options.h"

namespace tessera::ops {

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
