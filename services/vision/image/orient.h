#pragma once

#include "services/vision/image/picture.h"

namespace tessera::vision {

// 5 to 8 exchange rows and columns.
inline bool SwapsSides(int orientation) { return orientation >= 5; }

// Turns a picture as stored into an upright one. `orientation` as EXIF counts, 1..8.
RgbImage Orient(RgbImage stored, int orientation);

}  // namespace tessera::vision
