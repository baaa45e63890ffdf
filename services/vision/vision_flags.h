#pragma once

#include <vector>

#include "common/flags/flags.h"
#include "services/vision/vision_options.h"

namespace tessera::vision {

// The rows of the vision service, for its own binary and for `tessera serve`. `options` outlives
// their parsing.
std::vector<flags::Flag> VisionFlags(VisionOptions& options);

}  // namespace tessera::vision
