#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/access.h"
#include "common/rpc/channel.h"
#include "common/rpc/tls/tls_files.h"
#include "common/rpc/trace/span_exporter.h"
#include "common/store/set/store_set.h"

namespace tessera::service {

// What the process of any service is told.
struct ProcessOptions {
  std::string grpc_address = {};  // host:port; port 0 takes a free one
  std::string ops_address = {};   // host:port of the operations port; port 0 takes a free one
  std::string model_name = "tessera";
  bool has_model = true;                              // the gateway knows but its name
  absl::Duration drain_delay = absl::ZeroDuration();  // not ready, yet new work is still taken
  absl::Duration drain_timeout = absl::Seconds(90);   // from then on, for what runs
  rpc::TraceOptions traces = {};
};

// Of a service that only the other services ask.
struct InnerOptions {
  ProcessOptions process;
  int threads = 0;  // of the compute pool; 0: what the machine grants
  bool reflection = false;
  rpc::InnerAccessOptions access = {};
  store::StoreSetOptions store = {};
};

// How a service asks the others.
struct PeerOptions {
  bool tls = false;
  rpc::TlsFiles files = {.ca_flag = "peer_tls_ca_file",
                         .cert_flag = "peer_tls_cert_file",
                         .key_flag = "peer_tls_key_file"};

  // With TLS, where that is asked for. INVALID_ARGUMENT, BAD_OPTION: a file.
  absl::StatusOr<rpc::ChannelOptions> Channel() const;
};

}  // namespace tessera::service
