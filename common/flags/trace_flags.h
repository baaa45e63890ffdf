#pragma once

#include <string>
#include <vector>

#include "common/flags/flags.h"

namespace tessera::flags {

// The rows of where spans go, for every process that makes some: host:port of a collector, whether
// over TLS, and whom to believe then. The targets outlive their parsing.
std::vector<Flag> TraceFlags(std::string& endpoint, bool& tls, std::string& ca_file);

}  // namespace tessera::flags
