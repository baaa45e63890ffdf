#pragma once

#include <vector>

#include "common/flags/flags.h"
#include "common/service/options.h"

// Rows of flags that the binaries of several services have. The options outlive their parsing.
namespace tessera::service {

std::vector<flags::Flag> ProcessFlags(ProcessOptions& options);
// Those of ProcessFlags among them.
std::vector<flags::Flag> InnerFlags(InnerOptions& options);
std::vector<flags::Flag> PeerFlags(PeerOptions& options);

}  // namespace tessera::service
