#include "common/service/options.h"

#include "common/base/status_macros.h"

namespace tessera::service {

absl::StatusOr<rpc::ChannelOptions> PeerOptions::Channel() const {
  rpc::ChannelOptions options;
  if (tls) {
    ASSIGN_OR_RETURN(options.tls, rpc::ChannelTls::Create(files));
  }
  return options;
}

}  // namespace tessera::service
