#pragma once

#include <vector>

#include "common/flags/flags.h"
#include "common/store/set/store_set.h"

namespace tessera::flags {

// The rows of the embedding store, for every process that has one. `options` outlives their
// parsing.
std::vector<Flag> StoreFlags(store::StoreSetOptions& options);

}  // namespace tessera::flags
