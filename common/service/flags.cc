#include "common/service/flags.h"

#include <utility>

#include "common/flags/store_flags.h"
#include "common/flags/trace_flags.h"

namespace tessera::service {
namespace {

using flags::Flag;
using flags::OnOff;
using flags::Value;
using flags::ValueOrEmpty;

void Append(std::vector<Flag>& rows, std::vector<Flag> more) {
  for (Flag& row : more) rows.push_back(std::move(row));
}

}  // namespace

std::vector<Flag> ProcessFlags(ProcessOptions& options) {
  std::vector<Flag> rows = {
      {"grpc_address", Value(options.grpc_address), "host:port; port 0 takes a free one"},
      {"ops_address", Value(options.ops_address), "metrics, healthz, readyz"},
      {"model_name", Value(options.model_name), "that clients use, and a label of the metrics"},
      {"drain_delay", Value(options.drain_delay),
       "after SIGTERM: not ready any more, new work is still taken"},
      {"drain_timeout", Value(options.drain_timeout), "then, for running work"}};
  Append(rows,
         flags::TraceFlags(options.traces.endpoint, options.traces.tls, options.traces.ca_file));
  return rows;
}

std::vector<Flag> InnerFlags(InnerOptions& options) {
  std::vector<Flag> rows = ProcessFlags(options.process);
  Append(rows, {{"threads", Value(options.threads), "of the compute pool [what is granted]"},
                {"reflection", Value(options.reflection), "gRPC reflection"},
                {"tls_cert_file", ValueOrEmpty(options.access.tls.cert), "PEM, of this server"},
                {"tls_key_file", ValueOrEmpty(options.access.tls.key), "its key, PEM"},
                {"tls_client_ca_file", ValueOrEmpty(options.access.tls.ca),
                 "PEM; callers must show a certificate of it"},
                {"trusted_network", OnOff(options.access.trusted_network),
                 "on: everybody who can connect may speak for any tenant"}});
  Append(rows, flags::StoreFlags(options.store));
  return rows;
}

std::vector<Flag> PeerFlags(PeerOptions& options) {
  return {{"peer_tls", OnOff(options.tls), "on: the other services are asked over TLS"},
          {"peer_tls_ca_file", ValueOrEmpty(options.files.ca),
           "PEM, whom to believe [the system's authorities]"},
          {"peer_tls_cert_file", ValueOrEmpty(options.files.cert), "PEM, shown to them"},
          {"peer_tls_key_file", ValueOrEmpty(options.files.key), "its key, PEM"},
          {"peer_tls_server_name", ValueOrEmpty(options.files.server_name),
           "in their certificates [the address]"}};
}

}  // namespace tessera::service
