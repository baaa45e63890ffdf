#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/rpc/grpc_locks.h"

namespace tessera::rpc {

// gRPC takes a port modulo 65536; nobody means that.
absl::Status CheckAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 || absl::StrContains(address, "/") ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return base::BadField(
        "address", "BAD_OPTION",
        absl::StrCat("\"", address, "\" is no address: write host:port, without http://"));
  }
  return absl::OkStatus();
}

grpc::ChannelArguments BasicArguments(const ChannelOptions& options) {
  StopSearchForDeadlocks();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // gRPC would go to the proxy that the environment names, for loopback too.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // gRPC would widen the window to the rate of the wire: megabytes of every unread answer.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, options.receive_window_bytes);
  return arguments;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address, const ChannelOptions& options) {
  grpc::ChannelArguments arguments = BasicArguments(options);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, absl::ToInt64Milliseconds(options.keepalive));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  // gRPC would ask twice in a call in which we have no more to say, then never again.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // gRPC's own would leave a service that is back unused for up to two minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,  // which is what a connection may take
                   static_cast<int>(std::clamp<int64_t>(
                       absl::ToInt64Milliseconds(options.connect_timeout), 1, 1 << 30)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  if (options.tls == nullptr) {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  const std::string& name = options.tls->server_name();
  if (!name.empty()) arguments.SetSslTargetNameOverride(name);
  // The channel goes first: its credentials read what the other keeps.
  const auto both = std::make_shared<
      std::pair<std::shared_ptr<const ChannelTls>, std::shared_ptr<grpc::Channel>>>(
      options.tls, grpc::CreateCustomChannel(address, options.tls->credentials(), arguments));
  return std::shared_ptr<grpc::Channel>(both, both->second.get());
}

}  // namespace tessera::rpc
