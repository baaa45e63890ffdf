// The only file that knows libwebp.
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/vision/image/codec.h"
#include "services/vision/image/exif.h"

namespace tessera::vision {
namespace {

constexpr int kLossless = 2;  // WebPBitstreamFeatures::format

const uint8_t* Data(absl::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

absl::string_view StatusText(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the file is cut";
    case VP8_STATUS_OUT_OF_MEMORY:
      return "no memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "unsupported feature";
    default:
      return "bad bit stream";
  }
}

// Where the extended header (libwebp, doc/webp-container-spec) says that EXIF follows, behind the
// pixels.
bool AnnouncesExif(absl::string_view bytes) {
  constexpr size_t kFlagsAt = 20;
  constexpr char kExifFlag = 0x08;
  return absl::ClippedSubstr(bytes, 12, 4) == "VP8X" && bytes.size() > kFlagsAt &&
         (bytes[kFlagsAt] & kExifFlag) != 0;
}

int WebpOrientation(absl::string_view bytes) {
  const WebPData data = {Data(bytes), bytes.size()};
  std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data),
                                                                   &WebPDemuxDelete);
  if (demuxer == nullptr) return 1;
  WebPChunkIterator chunk;
  int orientation = 1;
  if (WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk)) {
    orientation = ExifOrientation(
        absl::string_view(reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size));
    WebPDemuxReleaseChunkIterator(&chunk);
  }
  return orientation;
}

}  // namespace

absl::StatusOr<ImageHeader> ReadWebpHeader(const Beginning& in) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(Data(in.bytes), in.bytes.size(), &features);
  // The extended header alone is enough for the library, but does not say the format.
  const bool cut = status == VP8_STATUS_NOT_ENOUGH_DATA ||
                   (status == VP8_STATUS_OK && features.format == 0 && !features.has_animation);
  if (cut && !in.whole()) return MoreBytesNeeded();
  if (status != VP8_STATUS_OK) return CorruptImage("webp", StatusText(status));
  if (features.has_animation) return UnsupportedImage("webp", "an animation");
  ImageHeader header;
  header.stored_width = features.width;
  header.stored_height = features.height;
  header.alpha = features.has_alpha != 0;
  header.channels = header.alpha ? 4 : 3;
  header.orientation_known = in.whole() || !AnnouncesExif(in.bytes);
  if (in.whole()) header.orientation = WebpOrientation(in.bytes);
  // Lossless keeps its own copy at 4 bytes, lossy with alpha a plane of it.
  const double inside = features.format == kLossless ? 4.5 : header.alpha ? 1.0 : 0.0;
  header.decode_bytes = BytesForPixels(header, inside + header.channels);
  return header;
}

absl::StatusOr<RgbImage> DecodeWebp(absl::string_view bytes, const ImageHeader& header) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return absl::InternalError("libwebp of another version");
  RgbImage image;
  image.width = header.stored_width;
  image.height = header.stored_height;
  const size_t pixels = static_cast<size_t>(StoredPixels(header));
  const int channels = header.alpha ? 4 : 3;
  image.rgb.resize(pixels * channels);
  config.output.colorspace = header.alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image.rgb.data();
  config.output.u.RGBA.stride = image.width * channels;
  config.output.u.RGBA.size = image.rgb.size();
  const VP8StatusCode status = WebPDecode(Data(bytes), bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) return CorruptImage("webp", StatusText(status));
  if (header.alpha) {
    FlattenOnWhite(image.rgb.data(), static_cast<int64_t>(pixels), image.rgb.data());
    image.rgb.resize(pixels * 3);
  }
  return image;
}

}  // namespace tessera::vision
