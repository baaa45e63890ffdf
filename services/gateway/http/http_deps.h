#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/rpc/trace/trace_context.h"
#include "services/gateway/api/api_deps.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::gateway::http {

// A request that has been answered, or whose client has gone (499). Nothing of what it said.
struct HttpDone {
  std::string request_id;
  rpc::TraceContext trace;
  absl::string_view route;  // "chat", "models", "health", "version", "unknown"
  int status = 0;
  bool stream = false;
  bool entered = false;  // a chat call: RequestMetrics has told its end already
  absl::Time arrival;    // the end of the request's head
  absl::Time end;
};

// The tenant behind an Authorization header, which may be empty; UNAUTHENTICATED where there is
// none. Any thread; must not wait.
using TenantResolver = std::function<absl::StatusOr<std::string>(absl::string_view authorization)>;

struct HttpDeps {
  ApiDeps api;  // what it refers to outlives the server
  v1::GetModelInfoResponse model;
  std::string version;                        // for /version
  TenantResolver tenant;                      // empty: everybody is the tenant ""
  std::function<absl::Status()> health;       // empty: well. Any thread; must not wait
  std::function<void(const HttpDone&)> done;  // may be empty. Any thread; must not wait
};

}  // namespace tessera::gateway::http
