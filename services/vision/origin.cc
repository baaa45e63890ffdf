#include "services/vision/origin.h"

#include <arpa/inet.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/rpc/channel.h"

namespace tessera::vision {
namespace {

// Whether a server of this host listens on every address of its machine: "0.0.0.0", "[::]".
bool IsEveryAddress(const std::string& host) {
  in_addr four = {};
  if (inet_aton(host.c_str(), &four) == 1) return four.s_addr == htonl(INADDR_ANY);
  absl::string_view inner = host;
  absl::ConsumePrefix(&inner, "[");
  absl::ConsumeSuffix(&inner, "]");
  in6_addr six = {};
  return inet_pton(AF_INET6, std::string(inner).c_str(), &six) == 1 &&
         IN6_IS_ADDR_UNSPECIFIED(&six);
}

}  // namespace

absl::StatusOr<std::string> OriginOf(const std::string& flag, const std::string& grpc_address) {
  const std::string& origin = flag.empty() ? grpc_address : flag;
  if (const absl::Status status = rpc::CheckAddress(origin); !status.ok()) {
    return base::WithField(base::Annotate(status, "--origin"), "origin");
  }
  const size_t colon = origin.rfind(':');
  if (!IsEveryAddress(origin.substr(0, colon)) && origin.substr(colon + 1) != "0") return origin;
  return base::BadField(
      "origin", "BAD_OPTION",
      absl::StrCat(flag.empty() ? "without --origin decode would be told to read rows from "
                                : "--origin tells decode to read rows from ",
                   origin,
                   ", which is no one's address: give --origin, the host:port under which decode "
                   "reaches this process, as in decode's --vision_origins"));
}

}  // namespace tessera::vision
