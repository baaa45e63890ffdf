#pragma once

#include <cstddef>

namespace tessera::testing {

// Calls of operator new by this thread so far.
size_t AllocationCount();

}  // namespace tessera::testing
