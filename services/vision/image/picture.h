#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/string_view.h"

// What a picture is, before and after its bytes are decoded. Values.
namespace tessera::vision {

// A decoded picture, upright, opaque.
struct RgbImage {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3], rows without padding
};

// What is refused from the header, before memory for pixels is taken.
struct ImageLimits {
  size_t max_bytes = size_t{32} << 20;  // encoded
  int64_t max_pixels = 64'000'000;      // width * height
  int max_side = 16384;                 // pixels, either side
  size_t max_decode_bytes = size_t{512}
                            << 20;  // estimated peak while decoding, the result included
};

// Whether anybody still waits for a picture: asked while it is decoded, of a JPEG or a PNG once for
// a few rows. Null: somebody does.
using StillWanted = std::function<bool()>;

enum class ImageFormat { kJpeg, kPng, kWebp, kBmp };

inline absl::string_view Name(ImageFormat format) {
  constexpr absl::string_view kNames[] = {"jpeg", "png", "webp", "bmp"};
  return kNames[static_cast<size_t>(format)];
}

struct ImageHeader {
  ImageFormat format = ImageFormat::kJpeg;
  int stored_width = 0;  // as in the file
  int stored_height = 0;
  int width = 0;  // after orientation
  int height = 0;
  int orientation = 1;  // EXIF, 1..8; absent, broken or unknown is 1
  // False only where bytes are missing that may hold it: then 1 is assumed.
  bool orientation_known = true;
  int channels = 3;    // as in the file: 1 grey or palette, 2 grey + alpha, 3, 4 (RGBA or CMYK)
  int bits = 8;        // per channel, as in the file (palette: per index)
  bool alpha = false;  // some pixel may be transparent
  size_t decode_bytes = 0;  // estimated peak of DecodeImage
};

}  // namespace tessera::vision
