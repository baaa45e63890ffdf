#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::tools {

// A server to ask, and who asks.
struct DialOptions {
  std::string address = "127.0.0.1:9000";
  std::string tls_ca_file = {};      // whose servers are believed; empty: no TLS
  std::string tls_server_name = {};  // of the certificate; empty: the address's host
  std::string tls_cert_file = {};    // our own, for a server that asks for one; empty: none
  std::string tls_key_file = {};     // its key
  std::string api_key = {};          // never printed; empty: none
  absl::Duration connect_timeout = absl::Seconds(20);  // for a connection
};

// INVALID_ARGUMENT, BAD_OPTION with the flag. Connects in the background.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Dial(const DialOptions& options);

// Why a server may be out of reach by the environment: it names a proxy, and none is used. Empty
// where it names none.
std::string ProxyNotice();

// Puts the key, where there is one, onto a call.
void AddKey(const std::string& api_key, grpc::ClientContext& context);

}  // namespace tessera::tools
