#pragma once

#include <cstddef>
#include <string>

namespace tessera::kernels {

// Bytes that this process could still take from the host's memory: the least of MemAvailable and
// of what every memory cgroup (v2 or v1) above the process leaves, where pages of files that the
// kernel would drop first (inactive_file) count as free. Pages that were mapped and never written
// are not in use yet, so they count as free, too. 0 where nothing says so. Any thread; reads a few
// small files. `root`: where /proc and /sys are, empty but in tests.
size_t FreeHostMemory(const std::string& root = "");

}  // namespace tessera::kernels
