#pragma once

#include <cstdint>
#include <optional>

namespace tessera::tools {

// The process of this machine that listens on a TCP port; none: there is none that we may see.
std::optional<int> ProcessAtPort(int port);

// The largest resident size of a process since it started, in bytes.
std::optional<int64_t> PeakMemory(int process);

}  // namespace tessera::tools
