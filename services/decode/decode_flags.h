#pragma once

#include <vector>

#include "common/flags/flags.h"
#include "services/decode/decode_options.h"

namespace tessera::decode {

// The rows of the decode service, for its own binary and for `tessera serve`. `options` outlives
// their parsing.
std::vector<flags::Flag> DecodeFlags(DecodeOptions& options);

}  // namespace tessera::decode
