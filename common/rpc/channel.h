#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/tls/tls.h"

namespace tessera::rpc {

// "host:port" with a port from 0 to 65535, else INVALID_ARGUMENT (BAD_OPTION).
absl::Status CheckAddress(const std::string& address);

// How often a client asks over a silent connection whether it lives, with calls under way only, and
// how often a server takes that: gRPC ends a connection whose client asks more often, at the third
// time. So a server takes twice what a client does.
constexpr absl::Duration kKeepalive = absl::Seconds(60);
constexpr absl::Duration kKeepaliveTaken = absl::Seconds(30);

struct ChannelOptions {
  // What a call's answers may hold here before they are read; with it a service feels a slow
  // reader. Text needs little, rows much. At least 64.
  int receive_window_bytes = 64 << 10;
  // Null: no TLS. Kept alive by the channel; make one for all channels of a process.
  std::shared_ptr<const ChannelTls> tls = nullptr;
  // Of a connection: what does not answer by then is UNAVAILABLE, or is tried again.
  absl::Duration connect_timeout = absl::Seconds(1);
  // Shorter for tests alone, and then ServerOptions::keepalive_taken with it.
  absl::Duration keepalive = kKeepalive;
};

// A channel to "host:port", straight: never by a proxy of the environment. Keepalive 60 s with
// calls only, messages unlimited here (the server limits them). Connects in the background; calls
// fail with UNAVAILABLE until it has.
std::shared_ptr<grpc::Channel> Connect(const std::string& address,
                                       const ChannelOptions& options = {});

// What every channel is made with: sizes of messages, the window, no proxy.
grpc::ChannelArguments BasicArguments(const ChannelOptions& options);

}  // namespace tessera::rpc
