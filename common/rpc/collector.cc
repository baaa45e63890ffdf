#include "common/rpc/collector.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/tls/tls.h"

namespace tessera::rpc {

absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectCollector(const TraceOptions& options) {
  if (options.endpoint.empty()) return nullptr;
  if (absl::Status good = CheckAddress(options.endpoint); !good.ok()) {
    return base::WithField(base::Annotate(good, "--otlp_endpoint"), "otlp_endpoint");
  }
  ChannelOptions channel;
  if (options.tls) {
    TlsFiles files;
    files.ca = options.ca_file;
    files.ca_flag = "otlp_tls_ca_file";
    ASSIGN_OR_RETURN(channel.tls, ChannelTls::Create(std::move(files)));
  } else if (!options.ca_file.empty()) {
    return base::BadField("otlp_tls_ca_file", "BAD_OPTION",
                          "--otlp_tls_ca_file is given: say --otlp_tls on, or leave it out");
  }
  return Connect(options.endpoint, channel);
}

}  // namespace tessera::rpc
