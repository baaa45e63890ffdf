#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>

#include "absl/time/time.h"

namespace tessera::rpc {

// What travels beside every request, over every hop.
struct RequestContext {
  std::string request_id;   // "x-request-id": accepted (1 to 128 printable ASCII) or made
  std::string traceparent;  // W3C trace context, empty when the client sent none
  absl::Time deadline;      // by base::Clock; what is left of it goes with the next hop
};

// Reads the metadata of a call and echoes the request id in the initial metadata. A missing or
// longer deadline becomes now + `cap`.
RequestContext AcceptRequest(grpc::CallbackServerContext& context, absl::Time now,
                             absl::Duration cap);

// Puts id, trace and what is left of the deadline onto an outgoing call.
void ForwardRequest(const RequestContext& request, absl::Time now, grpc::ClientContext& context);

// 16 random bytes in hex.
std::string NewRequestId();

}  // namespace tessera::rpc
