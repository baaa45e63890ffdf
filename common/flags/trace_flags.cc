#include "common/flags/trace_flags.h"

namespace tessera::flags {

std::vector<Flag> TraceFlags(std::string& endpoint, bool& tls, std::string& ca_file) {
  return {
      {"otlp_endpoint", ValueOrEmpty(endpoint),
       "host:port of a collector that takes spans, OTLP over gRPC [none]"},
      {"otlp_tls", OnOff(tls), "on: the collector is reached over TLS"},
      {"otlp_tls_ca_file", ValueOrEmpty(ca_file),
       "PEM, whom to believe then [the system's authorities]"},
  };
}

}  // namespace tessera::flags
