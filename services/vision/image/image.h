#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/vision/image/picture.h"

// Encoded pictures (JPEG, PNG, WebP, BMP) to 8-bit RGB. The bytes decide the format, never a name.
// Every function here is pure and may be called from any thread.
namespace tessera::vision {

// Errors of all functions here are INVALID_ARGUMENT with one of these reasons:
//   IMAGE_EMPTY      no bytes
//   IMAGE_FORMAT     not JPEG, PNG, WebP or BMP, or a kind of them that is not supported
//   IMAGE_TOO_LARGE  above one of the limits, which the message names
//   IMAGE_TOO_COMPLEX  a JPEG whose scans would take more than about a second
//   IMAGE_CORRUPT    broken or cut
// Messages never hold bytes of the picture.

// Reads and checks the header. Decodes no pixel and takes no memory of the picture's size.
absl::StatusOr<ImageHeader> ReadHeader(absl::string_view bytes, const ImageLimits& limits);

// The header from the first bytes of a picture of `picture_bytes`, read and checked; nullopt where
// they do not hold the whole header. A header is that of ReadHeader over the whole picture, and an
// error is one that ReadHeader gives too; but where the orientation is not known, the sides may be
// exchanged yet, and with them the estimate of memory grows. Takes time in the bytes given.
// REQUIRES: bytes.size() <= picture_bytes.
absl::StatusOr<std::optional<ImageHeader>> ReadHeaderOfPrefix(absl::string_view bytes,
                                                              size_t picture_bytes,
                                                              const ImageLimits& limits);

// ReadHeader, then the pixels: EXIF orientation applied, alpha flattened on white, 16 bit divided
// by 257, grey and palettes widened, CMYK and YCCK converted, profiles and gamma ignored. A cut
// file is refused; a JPEG that lacks nothing but its end marker is not. CANCELLED where `wanted`
// says no.
absl::StatusOr<RgbImage> DecodeImage(absl::string_view bytes, const ImageLimits& limits,
                                     const StillWanted& wanted = nullptr);

}  // namespace tessera::vision
