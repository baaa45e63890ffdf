#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tessera::rpc {

// The same code and message, and as google.rpc details what common/base/error.h attached:
// ErrorInfo (reason, facts), RetryInfo, BadRequest, ResourceInfo. FromGrpc is its inverse; a status
// without details (gRPC's own) keeps code and message.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace tessera::rpc
