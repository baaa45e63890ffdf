#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace tessera::rpc {

// A channel to "host:port": keepalive 60 s with calls only, messages unlimited here (the server
// limits them). Connects in the background; calls fail with UNAVAILABLE until it has.
std::shared_ptr<grpc::Channel> Connect(const std::string& address);

}  // namespace tessera::rpc
