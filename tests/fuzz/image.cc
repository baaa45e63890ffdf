// An encoded picture of any format. Header and pixels agree, memory stays within the limits (the
// runner limits single allocations as well), and the same bytes are the same picture.
#include "services/vision/image/image.h"

#include "common/base/check.h"
#include "tests/fuzz/check_refusal.h"

namespace tessera::fuzz {
namespace {

constexpr size_t kTwiceBytes = 64 << 10;  // pictures up to here are decoded twice

vision::ImageLimits Limits() {
  vision::ImageLimits limits;
  limits.max_bytes = 96 << 10;
  limits.max_pixels = 256 << 10;
  limits.max_side = 4096;
  limits.max_decode_bytes = 8 << 20;
  return limits;
}

void CheckHeader(const vision::ImageHeader& header) {
  const vision::ImageLimits limits = Limits();
  CHECK(header.width > 0 && header.height > 0);
  CHECK_LE(header.width, limits.max_side);
  CHECK_LE(header.height, limits.max_side);
  CHECK_LE(int64_t{header.width} * header.height, limits.max_pixels);
  CHECK_LE(header.decode_bytes, limits.max_decode_bytes);
  CHECK(header.orientation >= 1 && header.orientation <= 8);
}

void Run(absl::string_view bytes) {
  const auto refused = [](const absl::Status& status) {
    CheckRefusal(status, {"IMAGE_EMPTY", "IMAGE_FORMAT", "IMAGE_TOO_LARGE", "IMAGE_TOO_COMPLEX",
                          "IMAGE_CORRUPT"});
  };
  const absl::StatusOr<vision::ImageHeader> header = vision::ReadHeader(bytes, Limits());
  const absl::StatusOr<vision::RgbImage> image = vision::DecodeImage(bytes, Limits());
  if (!header.ok()) {
    refused(header.status());
    CHECK(image.status() == header.status());
    return;
  }
  CheckHeader(*header);
  if (!image.ok()) return refused(image.status());
  CHECK_EQ(image->width, header->width);
  CHECK_EQ(image->height, header->height);
  CHECK_EQ(image->rgb.size(), size_t{3} * image->width * image->height);
  if (image->rgb.size() > kTwiceBytes) return;
  CHECK(vision::DecodeImage(bytes, Limits())->rgb == image->rgb);
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::Run(tessera::fuzz::Bytes(data, size));
  return 0;
}
