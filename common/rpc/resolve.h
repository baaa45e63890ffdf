#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::rpc {

// The addresses of "host:port", numeric ("10.0.0.3:9200", "[::1]:9200"), sorted, each once.
// INVALID_ARGUMENT for what is no address, UNAVAILABLE when the name is not known. Asks the
// system's resolver, which may take seconds.
absl::StatusOr<std::vector<std::string>> ResolveAddress(const std::string& address);

// An address as the system's calls take it.
struct SocketAddress {
  sockaddr_storage storage;
  socklen_t size;
};
// Those of "host:port", in the order of the system's resolver. Otherwise as ResolveAddress.
absl::StatusOr<std::vector<SocketAddress>> SocketAddresses(const std::string& address);

// OK where a server could listen on `address` ("host:port"; port 0 and "" can always be had) at
// this moment; to be asked before a model is loaded. INVALID_ARGUMENT: ADDRESS_UNAVAILABLE with
// `flag`, or no address. Asks the system's resolver.
absl::Status CheckFree(absl::string_view flag, const std::string& address);

}  // namespace tessera::rpc
