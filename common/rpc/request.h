#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include "absl/time/time.h"
#include "common/rpc/trace/request_context.h"

namespace tessera::rpc {

// Reads the metadata of a call and echoes the request id in the initial metadata. A missing or
// longer deadline becomes now + `cap`. `sample_new`: of traces that begin here, spans are kept.
RequestContext AcceptRequest(grpc::CallbackServerContext& context, absl::Time now,
                             absl::Duration cap, bool sample_new = false);

// Puts id, trace and what is left of the deadline onto an outgoing call.
void ForwardRequest(const RequestContext& request, absl::Time now, grpc::ClientContext& context);

}  // namespace tessera::rpc
