#include "tools/client/dial.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"

namespace tessera::tools {

absl::StatusOr<std::shared_ptr<grpc::Channel>> Dial(const DialOptions& options) {
  RETURN_IF_ERROR(rpc::CheckAddress(options.address));
  // What gRPC would not send as metadata it would end the process for.
  if (!std::all_of(options.api_key.begin(), options.api_key.end(),
                   [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); })) {
    return base::BadField("api_key", "BAD_OPTION",
                          "--api_key holds a space or what cannot be printed");
  }
  rpc::ChannelOptions channel;
  channel.connect_timeout = options.connect_timeout;
  if (!options.tls_ca_file.empty()) {
    ASSIGN_OR_RETURN(channel.tls,
                     rpc::ChannelTls::Create({.ca = options.tls_ca_file,
                                              .cert = options.tls_cert_file,
                                              .key = options.tls_key_file,
                                              .server_name = options.tls_server_name}));
  }
  for (const auto& [flag, value] : {std::pair("tls_server_name", options.tls_server_name),
                                    std::pair("tls_cert_file", options.tls_cert_file),
                                    std::pair("tls_key_file", options.tls_key_file)}) {
    if (value.empty() || !options.tls_ca_file.empty()) continue;
    return base::BadField(flag, "BAD_OPTION",
                          absl::StrCat("--", flag, " is for TLS: give --tls_ca_file too"));
  }
  return rpc::Connect(options.address, channel);
}

std::string ProxyNotice() {
  for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy"}) {  // those that gRPC reads
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    return absl::StrCat(name, " is set, but addresses are reached without a proxy");
  }
  return "";
}

void AddKey(const std::string& api_key, grpc::ClientContext& context) {
  if (!api_key.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", api_key));
}

}  // namespace tessera::tools
