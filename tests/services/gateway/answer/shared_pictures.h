#pragma once

#include <cstdint>

namespace tessera::gateway {

// Requests that have pictures in common with each other and with uploads, and a vision service that
// makes the rows of each picture once. Whether all of them come to decode.
bool AllComeToDecode(uint32_t seed);

}  // namespace tessera::gateway
