#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/rpc/tls/tls_files.h"

namespace tessera::rpc {

// Who may reach a server that clients ask, and how.
struct AccessOptions {
  std::string api_keys_file;  // ApiKeys; empty: everybody may ask
  TlsFiles tls = {.ca_flag = "tls_client_ca_file"};
  // Listen beyond this machine though no key is asked for.
  bool allow_unauthenticated_network = false;
};

// BAD_OPTION of `flag` where its address ("host:port", or empty: none) is open to a network on
// which anyone could ask. Pure.
absl::Status CheckExposure(const AccessOptions& options, absl::string_view flag,
                           absl::string_view address);

// Who may reach a service that only the other services of this product ask. Whoever reaches it
// speaks for any tenant.
struct InnerAccessOptions {
  TlsFiles tls = {.ca_flag = "tls_client_ca_file"};
  bool trusted_network = false;  // everybody on it may
};

// BAD_OPTION where `address` is open to a network on which anyone could name any tenant: it needs
// mutual TLS, this machine alone, or the operator's word. Pure.
absl::Status CheckInnerExposure(const InnerAccessOptions& options, absl::string_view address);

}  // namespace tessera::rpc
