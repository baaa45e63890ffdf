#pragma once

#include <utility>

#include "absl/status/statusor.h"

namespace tessera::rpc {

// Two connected TCP sockets of this process, non-blocking, closed by the caller: nobody else can
// reach them. Not a socketpair(2): over Unix sockets gRPC 1.51 misses now and then that it may
// write again, and goes on ten seconds later. INTERNAL where this machine has no loopback.
absl::StatusOr<std::pair<int, int>> ConnectedSockets();

}  // namespace tessera::rpc
