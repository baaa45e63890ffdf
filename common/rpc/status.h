#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>

#include "absl/status/status.h"

namespace tessera::rpc {

// The same code and message, and as google.rpc details what common/base/error.h attached:
// ErrorInfo (reason, facts), RetryInfo, BadRequest, ResourceInfo. FromGrpc is its inverse; a status
// without details (gRPC's own) keeps code and message.
//
// Whatever the status says, what gRPC sends of it stays below kMostErrorBytes: a peer that is sent
// more than 8 KiB of metadata ends the connection with all its calls. Long facts, names and fields
// are cut first, then the message, between two characters; code, reason and retry are kept.
constexpr size_t kMostErrorBytes = 6 << 10;
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// What message and details take in the trailers: the one percent-encoded, the other in Base64
// (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
size_t EncodedErrorBytes(const grpc::Status& status);

}  // namespace tessera::rpc
