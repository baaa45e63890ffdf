#include "services/vision/image/image.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/vision/image/codec.h"
#include "services/vision/image/orient.h"

namespace tessera::vision {
namespace {

constexpr char kSupported[] = "supported are JPEG, PNG, WebP and BMP";

absl::Status ImageError(absl::string_view reason, absl::string_view message) {
  return base::Error(absl::StatusCode::kInvalidArgument, reason, message);
}

absl::Status TooLarge(absl::string_view what, int64_t value, int64_t limit) {
  return ImageError("IMAGE_TOO_LARGE", absl::StrCat("the picture has ", value, " ", what,
                                                    "; the limit is ", limit, ": make it smaller"));
}

// A name for formats that people send and we refuse; empty when nothing is recognised.
absl::string_view ForeignFormat(absl::string_view bytes) {
  if (absl::StartsWith(bytes, "GIF8")) return "GIF";
  if (absl::StartsWith(bytes, absl::string_view("II*\0", 4)) ||
      absl::StartsWith(bytes, absl::string_view("MM\0*", 4))) {
    return "TIFF";
  }
  if (absl::StartsWith(bytes, absl::string_view("\0\0\1\0", 4))) return "ICO";
  if (absl::ClippedSubstr(bytes, 4, 4) == "ftyp") return "HEIF, AVIF or a video";
  if (absl::ClippedSubstr(bytes, 4, 4) == "jP  ") return "JPEG 2000";
  if (absl::StartsWith(bytes, absl::string_view("PK\3\4", 4))) return "ZIP";
  if (absl::StartsWith(bytes, "%PDF")) return "PDF";
  if (absl::StartsWith(bytes, "<")) return "SVG, HTML or XML";
  return "";
}

absl::StatusOr<ImageFormat> Sniff(absl::string_view bytes) {
  if (bytes.empty()) return ImageError("IMAGE_EMPTY", "the picture has no bytes");
  if (absl::StartsWith(bytes, "\xFF\xD8")) return ImageFormat::kJpeg;
  if (absl::StartsWith(bytes, "\x89PNG\r\n\x1A\n")) return ImageFormat::kPng;
  if (absl::StartsWith(bytes, "RIFF") && absl::ClippedSubstr(bytes, 8, 4) == "WEBP")
    return ImageFormat::kWebp;
  if (absl::StartsWith(bytes, "BM")) return ImageFormat::kBmp;
  const absl::string_view foreign = ForeignFormat(bytes);
  return ImageError("IMAGE_FORMAT",
                    absl::StrCat(foreign.empty() ? "the bytes are no picture of a known format"
                                                 : absl::StrCat("this is ", foreign),
                                 "; ", kSupported));
}

absl::StatusOr<ImageHeader> ReadFormatHeader(ImageFormat format, absl::string_view bytes) {
  switch (format) {
    case ImageFormat::kJpeg:
      return ReadJpegHeader(bytes);
    case ImageFormat::kPng:
      return ReadPngHeader(bytes);
    case ImageFormat::kWebp:
      return ReadWebpHeader(bytes);
    case ImageFormat::kBmp:
      return ReadBmpHeader(bytes);
  }
  return absl::InternalError("unreachable");
}

absl::StatusOr<RgbImage> DecodeFormat(absl::string_view bytes, const ImageHeader& header) {
  switch (header.format) {
    case ImageFormat::kJpeg:
      return DecodeJpeg(bytes, header);
    case ImageFormat::kPng:
      return DecodePng(bytes, header);
    case ImageFormat::kWebp:
      return DecodeWebp(bytes, header);
    case ImageFormat::kBmp:
      return DecodeBmp(bytes, header);
  }
  return absl::InternalError("unreachable");
}

absl::Status CheckLimits(const ImageHeader& header, const ImageLimits& limits) {
  if (header.stored_width <= 0 || header.stored_height <= 0) {
    return CorruptImage(Name(header.format), "a side of the picture is not positive");
  }
  const int side = std::max(header.stored_width, header.stored_height);
  if (side > limits.max_side) return TooLarge("pixels on one side", side, limits.max_side);
  if (StoredPixels(header) > limits.max_pixels) {
    return TooLarge("pixels", StoredPixels(header), limits.max_pixels);
  }
  if (header.decode_bytes > limits.max_decode_bytes) {
    return TooLarge("bytes of memory to decode", static_cast<int64_t>(header.decode_bytes),
                    static_cast<int64_t>(limits.max_decode_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view Name(ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return "jpeg";
    case ImageFormat::kPng:
      return "png";
    case ImageFormat::kWebp:
      return "webp";
    case ImageFormat::kBmp:
      return "bmp";
  }
  return "";
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

absl::StatusOr<ImageHeader> ReadHeader(absl::string_view bytes, const ImageLimits& limits) {
  if (bytes.size() > limits.max_bytes) {
    return TooLarge("bytes", static_cast<int64_t>(bytes.size()),
                    static_cast<int64_t>(limits.max_bytes));
  }
  ASSIGN_OR_RETURN(const ImageFormat format, Sniff(bytes));
  ASSIGN_OR_RETURN(ImageHeader header, ReadFormatHeader(format, bytes));
  header.format = format;
  const bool swap = SwapsSides(header.orientation);
  header.width = swap ? header.stored_height : header.stored_width;
  header.height = swap ? header.stored_width : header.stored_height;
  // Turning by a quarter holds the picture twice, after the decoder's own memory is gone.
  if (swap) header.decode_bytes = std::max(header.decode_bytes, BytesForPixels(header, 6));
  RETURN_IF_ERROR(CheckLimits(header, limits));
  return header;
}

absl::StatusOr<RgbImage> DecodeImage(absl::string_view bytes, const ImageLimits& limits) {
  ASSIGN_OR_RETURN(const ImageHeader header, ReadHeader(bytes, limits));
  ASSIGN_OR_RETURN(RgbImage stored, DecodeFormat(bytes, header));
  return Orient(std::move(stored), header.orientation);
}

}  // namespace tessera::vision
