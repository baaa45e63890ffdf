#include "common/rpc/peer.h"

#include <arpa/inet.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace tessera::rpc {

bool IsLoopbackAddress(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return false;
  const std::string host(address.substr(0, colon));
  if (host == "localhost" || host == "[::1]") return true;
  in_addr parsed = {};
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 && ntohl(parsed.s_addr) >> 24 == 127;
}

bool PeerMayNameTenant(absl::string_view peer, const grpc::AuthContext* auth,
                       bool trusted_network) {
  if (trusted_network) return true;
  if (auth != nullptr && auth->IsPeerAuthenticated()) return true;
  // "fd:" is a pair of sockets within the process; gRPC names no other peer so.
  if (absl::StartsWith(peer, "fd:") || absl::StartsWith(peer, "unix:")) return true;
  if (absl::ConsumePrefix(&peer, "ipv4:")) return IsLoopbackAddress(peer);
  if (!absl::ConsumePrefix(&peer, "ipv6:")) return false;
  return IsLoopbackAddress(absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}}));
}

}  // namespace tessera::rpc
