#include "common/rpc/access.h"

#include <arpa/inet.h>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::rpc {
namespace {

// Whether "host:port" can be reached from this machine alone: an address of 127.0.0.0/8, [::1] or
// localhost.
bool IsLoopbackAddress(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return false;
  const std::string host(address.substr(0, colon));
  if (host == "localhost" || host == "[::1]") return true;
  in_addr parsed = {};
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 && ntohl(parsed.s_addr) >> 24 == 127;
}

}  // namespace

absl::Status CheckExposure(const AccessOptions& options, absl::string_view flag,
                           absl::string_view address) {
  if (address.empty() || !options.api_keys_file.empty() || options.allow_unauthenticated_network ||
      IsLoopbackAddress(address)) {
    return absl::OkStatus();
  }
  return base::BadField(
      flag, "BAD_OPTION",
      absl::StrCat("--", flag, " ", address,
                   " may be reached from the network, where anyone could ask: give "
                   "--api_keys_file, listen on 127.0.0.1, or say "
                   "--allow_unauthenticated_network on"));
}

absl::Status CheckInnerExposure(const InnerAccessOptions& options, absl::string_view address) {
  if (!options.tls.ca.empty() || options.trusted_network || IsLoopbackAddress(address)) {
    return absl::OkStatus();
  }
  return base::BadField(
      "grpc_address", "BAD_OPTION",
      absl::StrCat("--grpc_address ", address,
                   " may be reached from the network, where anyone could speak for any tenant: "
                   "give --tls_cert_file, --tls_key_file and --tls_client_ca_file, listen on "
                   "127.0.0.1, or say --trusted_network on"));
}

}  // namespace tessera::rpc
