#include "common/rpc/access.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/rpc/peer.h"

namespace tessera::rpc {

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

}  // namespace tessera::rpc
