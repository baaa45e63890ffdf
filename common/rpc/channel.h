#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace tessera::rpc {

// "host:port" with a port from 0 to 65535, else INVALID_ARGUMENT (BAD_OPTION).
absl::Status CheckAddress(const std::string& address);

// A channel to "host:port": keepalive 60 s with calls only, messages unlimited here (the server
// limits them). Connects in the background; calls fail with UNAVAILABLE until it has.
std::shared_ptr<grpc::Channel> Connect(const std::string& address);

}  // namespace tessera::rpc
