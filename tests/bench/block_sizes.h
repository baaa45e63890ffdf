#pragma once

#include <cstddef>

namespace tessera::bench {

// From how many bytes on a block of memory is called so.
constexpr size_t kMediumBytes = 4 << 10;
constexpr size_t kLargeBytes = 64 << 10;

}  // namespace tessera::bench
