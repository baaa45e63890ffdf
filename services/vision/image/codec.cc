#include "services/vision/image/codec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::vision {

absl::Status NotWanted() { return absl::CancelledError("nobody waits for the picture"); }

absl::Status MoreBytesNeeded() { return absl::OutOfRangeError("the header has not all come"); }

absl::Status ImageError(absl::string_view reason, absl::string_view message) {
  return base::Error(absl::StatusCode::kInvalidArgument, reason, message);
}

absl::Status CorruptImage(absl::string_view format, absl::string_view what) {
  return ImageError("IMAGE_CORRUPT", absl::StrCat("broken ", format, " picture: ", what));
}

absl::Status UnsupportedImage(absl::string_view format, absl::string_view what) {
  return ImageError("IMAGE_FORMAT",
                    absl::StrCat("this kind of ", format, " picture is not supported: ", what));
}

RgbImage BlankImage(const ImageHeader& header) {
  RgbImage image;
  image.width = header.stored_width;
  image.height = header.stored_height;
  image.rgb.resize(static_cast<size_t>(StoredPixels(header)) * 3);
  return image;
}

size_t BytesForPixels(const ImageHeader& header, double bytes_per_pixel) {
  constexpr double kSaturated = 1e15;
  const double bytes = static_cast<double>(StoredPixels(header)) * bytes_per_pixel;
  return static_cast<size_t>(std::clamp(bytes, 0.0, kSaturated));
}

void FlattenOnWhite(const uint8_t* rgba, int64_t pixels, uint8_t* rgb) {
  for (int64_t i = 0; i < pixels; ++i, rgba += 4, rgb += 3) {
    const uint8_t alpha = rgba[3];
    for (int c = 0; c < 3; ++c) rgb[c] = OnWhite(rgba[c], alpha);
  }
}

}  // namespace tessera::vision
