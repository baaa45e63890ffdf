#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::rpc {

// The addresses of "host:port", numeric ("10.0.0.3:9200", "[::1]:9200"), sorted, each once.
// INVALID_ARGUMENT for what is no address, UNAVAILABLE when the name is not known. Asks the
// system's resolver, which may take seconds.
absl::StatusOr<std::vector<std::string>> ResolveAddress(const std::string& address);

}  // namespace tessera::rpc
