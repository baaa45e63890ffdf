#pragma once

#include "absl/strings/string_view.h"

namespace tessera::vision {

// The orientation (tag 0x0112 of IFD0) in an EXIF block: a TIFF stream of either byte order, with
// or without the "Exif\0\0" prefix. 1..8; 1 ("as it is") for anything absent, broken or out of
// range.
int ExifOrientation(absl::string_view block);

}  // namespace tessera::vision
