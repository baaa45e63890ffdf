#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/vision/image/picture.h"

// What image.cc asks of the four formats; nobody else includes this. Sides below come as the file
// stores them; image.cc turns the result. A reader of a header fills everything but `width`,
// `height`, and leaves limits to image.cc. A decoder is called with a header that passed the
// limits, and must not exceed header.decode_bytes by more than a constant.
namespace tessera::vision {

// The first bytes of a picture, or all of them.
struct Beginning {
  absl::string_view bytes;
  size_t picture_bytes = 0;

  bool whole() const { return bytes.size() == picture_bytes; }
};
inline Beginning Whole(absl::string_view bytes) { return {bytes, bytes.size()}; }

// MoreBytesNeeded where the bytes are not whole and the header is not in them.
absl::StatusOr<ImageHeader> ReadJpegHeader(const Beginning& in);
absl::StatusOr<ImageHeader> ReadPngHeader(const Beginning& in);
absl::StatusOr<ImageHeader> ReadWebpHeader(const Beginning& in);
absl::StatusOr<ImageHeader> ReadBmpHeader(const Beginning& in);

absl::StatusOr<RgbImage> DecodeJpeg(absl::string_view bytes, const ImageHeader& header,
                                    const StillWanted& wanted);
absl::StatusOr<RgbImage> DecodePng(absl::string_view bytes, const ImageHeader& header,
                                   const StillWanted& wanted);
absl::StatusOr<RgbImage> DecodeWebp(absl::string_view bytes, const ImageHeader& header);
absl::StatusOr<RgbImage> DecodeBmp(absl::string_view bytes, const ImageHeader& header);

// OUT_OF_RANGE, which no other error of this folder is. It does not leave the folder.
absl::Status MoreBytesNeeded();
// CANCELLED: nobody waits for the picture.
absl::Status NotWanted();
// INVALID_ARGUMENT, of one of the reasons in image.h.
absl::Status ImageError(absl::string_view reason, absl::string_view message);
absl::Status CorruptImage(absl::string_view format, absl::string_view what);
absl::Status UnsupportedImage(absl::string_view format, absl::string_view what);

// Stored dimensions and a black picture of them. REQUIRES: the header passed the limits.
RgbImage BlankImage(const ImageHeader& header);
inline int64_t StoredPixels(const ImageHeader& header) {
  return int64_t{header.stored_width} * header.stored_height;
}
// Memory at so many bytes for each stored pixel; saturates, since sides are not checked yet.
size_t BytesForPixels(const ImageHeader& header, double bytes_per_pixel);

// Colour `c` with opacity `a` on white, rounded to the nearest.
inline uint8_t OnWhite(uint8_t c, uint8_t a) {
  return static_cast<uint8_t>((c * a + 255 * (255 - a) + 127) / 255);
}
// [pixels, 4] RGBA to [pixels, 3] RGB on white. `rgb` may be `rgba` itself.
void FlattenOnWhite(const uint8_t* rgba, int64_t pixels, uint8_t* rgb);

}  // namespace tessera::vision
