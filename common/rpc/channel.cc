#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::rpc {

// gRPC takes a port modulo 65536; nobody means that.
absl::Status CheckAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return base::BadField("address", "BAD_OPTION",
                          absl::StrCat("\"", address, "\" is no address: write host:port"));
  }
  return absl::OkStatus();
}

grpc::ChannelArguments BasicArguments(const ChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // gRPC would widen the window to the rate of the wire: megabytes of every unread answer.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, options.receive_window_bytes);
  return arguments;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address, const ChannelOptions& options) {
  grpc::ChannelArguments arguments = BasicArguments(options);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60 * 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace tessera::rpc
