#include "services/vision/image/image.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "services/vision/image/codec.h"
#include "services/vision/image/orient.h"

namespace tessera::vision {
namespace {

constexpr size_t kSniffedBytes = 12;  // that tell every format, ours and foreign ones
constexpr char kSupported[] = "supported are JPEG, PNG, WebP and BMP";

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

absl::StatusOr<ImageHeader> ReadFormatHeader(ImageFormat format, const Beginning& in) {
  switch (format) {
    case ImageFormat::kJpeg:
      return ReadJpegHeader(in);
    case ImageFormat::kPng:
      return ReadPngHeader(in);
    case ImageFormat::kWebp:
      return ReadWebpHeader(in);
    case ImageFormat::kBmp:
      return ReadBmpHeader(in);
  }
  return absl::InternalError("unreachable");
}

absl::StatusOr<RgbImage> DecodeFormat(absl::string_view bytes, const ImageHeader& header,
                                      const StillWanted& wanted) {
  switch (header.format) {
    case ImageFormat::kJpeg:
      return DecodeJpeg(bytes, header, wanted);
    case ImageFormat::kPng:
      return DecodePng(bytes, header, wanted);
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

absl::StatusOr<ImageHeader> ReadBeginning(const Beginning& in, const ImageLimits& limits) {
  if (in.picture_bytes > limits.max_bytes) {
    return TooLarge("bytes", static_cast<int64_t>(in.picture_bytes),
                    static_cast<int64_t>(limits.max_bytes));
  }
  if (!in.whole() && in.bytes.size() < kSniffedBytes) return MoreBytesNeeded();
  ASSIGN_OR_RETURN(const ImageFormat format, Sniff(in.bytes));
  ASSIGN_OR_RETURN(ImageHeader header, ReadFormatHeader(format, in));
  header.format = format;
  const bool swap = SwapsSides(header.orientation);
  header.width = swap ? header.stored_height : header.stored_width;
  header.height = swap ? header.stored_width : header.stored_height;
  // Turning by a quarter holds the picture twice, after the decoder's own memory is gone.
  if (swap) header.decode_bytes = std::max(header.decode_bytes, BytesForPixels(header, 6));
  RETURN_IF_ERROR(CheckLimits(header, limits));
  return header;
}

}  // namespace

absl::StatusOr<ImageHeader> ReadHeader(absl::string_view bytes, const ImageLimits& limits) {
  return ReadBeginning(Whole(bytes), limits);
}

absl::StatusOr<std::optional<ImageHeader>> ReadHeaderOfPrefix(absl::string_view bytes,
                                                              size_t picture_bytes,
                                                              const ImageLimits& limits) {
  CHECK_LE(bytes.size(), picture_bytes);
  absl::StatusOr<ImageHeader> header = ReadBeginning({bytes, picture_bytes}, limits);
  if (header.ok()) return *std::move(header);
  if (absl::IsOutOfRange(header.status())) return std::nullopt;
  return header.status();
}

absl::StatusOr<RgbImage> DecodeImage(absl::string_view bytes, const ImageLimits& limits,
                                     const StillWanted& wanted) {
  ASSIGN_OR_RETURN(const ImageHeader header, ReadHeader(bytes, limits));
  ASSIGN_OR_RETURN(RgbImage stored, DecodeFormat(bytes, header, wanted));
  if (wanted && !wanted()) return NotWanted();
  return Orient(std::move(stored), header.orientation);
}

}  // namespace tessera::vision
