#pragma once

#include <cstddef>

namespace tessera::testing {

// Calls of operator new by this thread so far.
size_t AllocationCount();
// Bytes of the largest of them since this was last asked.
size_t LargestAllocation();

}  // namespace tessera::testing
