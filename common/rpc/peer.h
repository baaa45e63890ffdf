#pragma once

#include <grpcpp/security/auth_context.h>

#include "absl/strings/string_view.h"

namespace tessera::rpc {

// Whether "host:port" can be reached from this machine alone: an address of 127.0.0.0/8, [::1] or
// localhost.
bool IsLoopbackAddress(absl::string_view address);

// Whether a caller may say which tenant it speaks for: over mutual TLS, from this machine (or this
// process), or where the operator has said that everybody on the network is trusted. `peer` is
// grpc's ServerContext::peer(), `auth` its auth_context(), which may be null. Pure.
bool PeerMayNameTenant(absl::string_view peer, const grpc::AuthContext* auth, bool trusted_network);

}  // namespace tessera::rpc
