#pragma once

#include <cstddef>
#include <string>

#include "absl/time/time.h"

namespace tessera::gateway {

// What a picture of a request may be, and what names one that was uploaded.
struct PictureOptions {
  size_t max_image_bytes = 20u << 20;  // of one encoded picture
  absl::Duration handle_ttl = absl::Hours(1);
  std::string handle_key;  // shared by gateways; at least 16 bytes
};

}  // namespace tessera::gateway
