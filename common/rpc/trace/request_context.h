#pragma once

#include <string>

#include "absl/time/time.h"
#include "common/rpc/trace/trace_context.h"

namespace tessera::rpc {

// What travels beside every request, over every hop.
struct RequestContext {
  std::string request_id;  // "x-request-id": accepted (1 to 128 printable ASCII) or made
  TraceContext trace;      // the span of this hop: "traceparent" names its caller's
  absl::Time deadline;     // by base::Clock; what is left of it goes with the next hop
};

// 16 random bytes in hex.
std::string NewRequestId();

}  // namespace tessera::rpc
