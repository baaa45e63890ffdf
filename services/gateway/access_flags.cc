#include "services/gateway/access_flags.h"

namespace tessera::gateway {

using flags::OnOff;
using flags::ValueOrEmpty;

std::vector<flags::Flag> AccessFlags(rpc::AccessOptions& options) {
  return {
      {"api_keys_file", ValueOrEmpty(options.api_keys_file),
       "bearer keys, a line TENANT sha256:HEX each [none is asked for]; read again when it "
       "changes"},
      {"tls_cert_file", ValueOrEmpty(options.tls.cert),
       "PEM; TLS instead of plain text; read again when it changes"},
      {"tls_key_file", ValueOrEmpty(options.tls.key), "of that certificate, PEM"},
      {"tls_client_ca_file", ValueOrEmpty(options.tls.ca),
       "PEM; clients of gRPC and HTTP must show a certificate of it; the operations port asks for "
       "none"},
      {"allow_unauthenticated_network", OnOff(options.allow_unauthenticated_network),
       "on: listen beyond this machine without keys; anyone who gets there asks, reads what all "
       "others uploaded and uses all of the device"},
  };
}

}  // namespace tessera::gateway
