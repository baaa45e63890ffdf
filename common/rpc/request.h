#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>

#include "absl/time/time.h"
#include "common/rpc/trace_context.h"

namespace tessera::rpc {

// What travels beside every request, over every hop.
struct RequestContext {
  std::string request_id;  // "x-request-id": accepted (1 to 128 printable ASCII) or made
  TraceContext trace;      // the span of this hop: "traceparent" names its caller's
  absl::Time deadline;     // by base::Clock; what is left of it goes with the next hop
};

// Reads the metadata of a call and echoes the request id in the initial metadata. A missing or
// longer deadline becomes now + `cap`. `sample_new`: of traces that begin here, spans are kept.
RequestContext AcceptRequest(grpc::CallbackServerContext& context, absl::Time now,
                             absl::Duration cap, bool sample_new = false);

// Puts id, trace and what is left of the deadline onto an outgoing call.
void ForwardRequest(const RequestContext& request, absl::Time now, grpc::ClientContext& context);

// 16 random bytes in hex.
std::string NewRequestId();

}  // namespace tessera::rpc
