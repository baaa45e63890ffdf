#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Encoded pictures (JPEG, PNG, WebP, BMP) to 8-bit RGB. The bytes decide the format, never a name.
// Every function here is pure and may be called from any thread.
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

enum class ImageFormat { kJpeg, kPng, kWebp, kBmp };

absl::string_view Name(ImageFormat format);  // "jpeg", "png", "webp", "bmp"

struct ImageHeader {
  ImageFormat format = ImageFormat::kJpeg;
  int stored_width = 0;  // as in the file
  int stored_height = 0;
  int width = 0;  // after orientation
  int height = 0;
  int orientation = 1;  // EXIF, 1..8; absent, broken or unknown is 1
  int channels = 3;     // as in the file: 1 grey or palette, 2 grey + alpha, 3, 4 (RGBA or CMYK)
  int bits = 8;         // per channel, as in the file (palette: per index)
  bool alpha = false;   // some pixel may be transparent
  size_t decode_bytes = 0;  // estimated peak of DecodeImage
};

// Errors of both functions are INVALID_ARGUMENT with one of these reasons:
//   IMAGE_EMPTY      no bytes
//   IMAGE_FORMAT     not JPEG, PNG, WebP or BMP, or a kind of them that is not supported
//   IMAGE_TOO_LARGE  above one of the limits, which the message names
//   IMAGE_CORRUPT    broken or cut
// Messages never hold bytes of the picture.

// Reads and checks the header. Decodes no pixel and takes no memory of the picture's size.
absl::StatusOr<ImageHeader> ReadHeader(absl::string_view bytes, const ImageLimits& limits);

// ReadHeader, then the pixels: EXIF orientation applied, alpha flattened on white, 16 bit divided
// by 257, grey and palettes widened, CMYK and YCCK converted, profiles and gamma ignored. A cut
// file is refused; a JPEG that lacks nothing but its end marker is not.
absl::StatusOr<RgbImage> DecodeImage(absl::string_view bytes, const ImageLimits& limits);

}  // namespace tessera::vision
