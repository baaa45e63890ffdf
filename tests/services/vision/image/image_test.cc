#include "services/vision/image/image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "tests/services/vision/image/pictures.h"

namespace tessera::vision {
namespace {

std::string ReasonFor(absl::string_view bytes, const ImageLimits& limits = {}) {
  auto image = DecodeImage(bytes, limits);
  return image.ok() ? "accepted" : base::ReasonOf(image.status());
}

std::vector<uint8_t> Pixel(const RgbImage& image, int x, int y) {
  const uint8_t* at = &image.rgb[(static_cast<size_t>(y) * image.width + x) * 3];
  return {at[0], at[1], at[2]};
}

TEST(Orientation, AllEightComeOutUprightInPng) {
  const RgbImage upright = Scene(24, 16, 1);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool big_endian : {false, true}) {
      SCOPED_TRACE(orientation);
      const std::string bytes =
          EncodePng(StoredFor(upright, orientation), ExifBlock(orientation, big_endian));
      const auto difference = Compare(DecodeOrDie(bytes), upright);
      ASSERT_TRUE(difference.has_value());
      EXPECT_EQ(difference->largest, 0);
    }
  }
}

TEST(Orientation, AllEightComeOutUprightInJpeg) {
  const RgbImage upright = Scene(24, 16, 1);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    SCOPED_TRACE(orientation);
    const RgbImage stored = StoredFor(upright, orientation);
    JpegOptions options;
    options.exif = ExifBlock(orientation, orientation % 2 == 0);
    const std::string bytes = EncodeJpeg(stored.width, stored.height, stored.rgb, options);
    const auto difference = Compare(DecodeOrDie(bytes), upright);
    ASSERT_TRUE(difference.has_value());
    EXPECT_LE(difference->mean, 3);
  }
}

TEST(Orientation, ARedBarOnTheStoredLeftEdgeIsOnTopWithTag6) {
  RgbImage stored = Filled(48, 32, 255, 255, 255);
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 8; ++x) {
      uint8_t* pixel = &stored.rgb[(y * 48 + x) * 3];
      pixel[1] = pixel[2] = 0;
    }
  }
  JpegOptions options;
  options.exif = ExifBlock(6, true);
  const RgbImage image = DecodeOrDie(EncodeJpeg(48, 32, stored.rgb, options));
  ASSERT_EQ(image.width, 32);
  ASSERT_EQ(image.height, 48);
  for (const int x : {1, 16, 30}) {
    EXPECT_LT(Pixel(image, x, 3)[1], 40);
    EXPECT_GT(Pixel(image, x, 44)[1], 215);
  }
}

TEST(Orientation, TheHeaderSaysTheSizeAfterTurning) {
  auto header = ReadHeader(EncodePng(Scene(200, 100, 2), ExifBlock(6, false)), ImageLimits());
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->stored_width, 200);
  EXPECT_EQ(header->width, 100);
  EXPECT_EQ(header->height, 200);
  EXPECT_EQ(header->orientation, 6);
}

class Cmyk : public ::testing::TestWithParam<JpegOptions> {};

TEST_P(Cmyk, ALightToneStaysLight) {
  // Stored inverted: 240, 220, 200 of light, all of it behind no black.
  std::vector<uint8_t> samples;
  for (int i = 0; i < 64 * 64; ++i) samples.insert(samples.end(), {240, 220, 200, 255});
  const RgbImage image = DecodeOrDie(EncodeJpeg(64, 64, samples, GetParam()));
  const std::vector<uint8_t> pixel = Pixel(image, 32, 32);
  EXPECT_NEAR(pixel[0], 240, 3);
  EXPECT_NEAR(pixel[1], 220, 3);
  EXPECT_NEAR(pixel[2], 200, 3);
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutAdobeAndYcck, Cmyk,
                         ::testing::Values(JpegOptions{JpegColor::kCmyk, 95, true, ""},
                                           JpegOptions{JpegColor::kCmyk, 95, false, ""},
                                           JpegOptions{JpegColor::kYcck, 95, true, ""}));

TEST(Png, SixteenBitGreyKeepsAllItsLevels) {
  std::vector<uint8_t> samples;
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 256; ++x) {
      samples.push_back(static_cast<uint8_t>(x));  // x * 257
      samples.push_back(static_cast<uint8_t>(x));
    }
  }
  PngOptions options;
  options.channels = 1;
  options.bits = 16;
  const RgbImage image = DecodeOrDie(EncodePng(256, 8, samples, options));
  std::set<std::vector<uint8_t>> levels;
  int white = 0;
  for (int x = 0; x < 256; ++x) {
    levels.insert(Pixel(image, x, 4));
    white += Pixel(image, x, 4)[0] == 255 ? 1 : 0;
  }
  EXPECT_EQ(levels.size(), 256u);
  EXPECT_EQ(white, 1);
}

TEST(Png, BlackOnTransparentIsBlackOnWhite) {
  std::vector<uint8_t> samples(32 * 32 * 4, 0);
  for (int i = 0; i < 32; ++i) samples[(i * 32 + i) * 4 + 3] = 255;
  PngOptions options;
  options.channels = 4;
  const RgbImage image = DecodeOrDie(EncodePng(32, 32, samples, options));
  EXPECT_EQ(Pixel(image, 5, 5), (std::vector<uint8_t>{0, 0, 0}));
  EXPECT_EQ(Pixel(image, 5, 6), (std::vector<uint8_t>{255, 255, 255}));
}

TEST(Png, ColourBehindFullTransparencyIsWhite) {
  std::vector<uint8_t> samples;
  for (const uint8_t value : Scene(32, 32, 3).rgb) {
    samples.push_back(value);
    if (samples.size() % 4 == 3) samples.push_back(0);
  }
  PngOptions options;
  options.channels = 4;
  const RgbImage image = DecodeOrDie(EncodePng(32, 32, samples, options));
  EXPECT_EQ(Sha256Hex(image), Sha256Hex(Filled(32, 32, 255, 255, 255)));
}

TEST(Png, ADarkPictureIsStillOpaqueWithoutAlpha) {
  const RgbImage dark = Filled(5, 4, 1, 2, 3);
  EXPECT_EQ(Sha256Hex(DecodeOrDie(EncodePng(dark))), Sha256Hex(dark));
}

TEST(DecodeImage, SmallestShapesKeepTheirColour) {
  const int sizes[][2] = {{1, 1}, {3, 3}, {1, 3}, {3, 1}, {3, 224}, {224, 3}};
  for (const auto& [width, height] : sizes) {
    const RgbImage in = Filled(width, height, 200, 100, 50);
    EXPECT_EQ(Sha256Hex(DecodeOrDie(EncodePng(in))), Sha256Hex(in)) << width << "x" << height;
  }
}

TEST(DecodeImage, EveryLimitIsNamedAndTheBorderIsInside) {
  const std::string bytes = EncodePng(Scene(40, 30, 4));
  ImageLimits limits;
  limits.max_bytes = bytes.size();
  limits.max_side = 40;
  limits.max_pixels = 40 * 30;
  limits.max_decode_bytes = 40 * 30 * 3;
  EXPECT_EQ(ReasonFor(bytes, limits), "accepted");
  const auto refused = [&](ImageLimits tight, const std::string& word) {
    auto image = DecodeImage(bytes, tight);
    ASSERT_FALSE(image.ok());
    EXPECT_EQ(base::ReasonOf(image.status()), "IMAGE_TOO_LARGE");
    EXPECT_TRUE(absl::StrContains(image.status().message(), word)) << image.status();
  };
  ImageLimits tight = limits;
  --tight.max_bytes;
  refused(tight, "bytes");
  tight = limits;
  --tight.max_side;
  refused(tight, "39");
  tight = limits;
  --tight.max_pixels;
  refused(tight, "1199");
  tight = limits;
  --tight.max_decode_bytes;
  refused(tight, "memory");
}

TEST(DecodeImage, TwentyBombsAtOnceAreRefusedWithShortMessages) {
  const std::string bomb =
      ReadFileOrDie(GoldensDirectory() + "/images_bad/png_bomb_12000x12000.png");
  std::vector<std::thread> threads;
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&bomb] {
      auto image = DecodeImage(bomb, ImageLimits());
      EXPECT_EQ(base::ReasonOf(image.status()), "IMAGE_TOO_LARGE");
      EXPECT_LT(image.status().ToString().size(), 1000u);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Given up at any of the moments in which it is asked whether anybody waits.
TEST(DecodeImage, APictureThatNobodyWaitsForIsGivenUpOnTheWay) {
  const RgbImage scene = Scene(400, 300, 4);
  const std::string odd = GoldensDirectory() + "/images_odd/";
  for (const std::string& bytes :
       {EncodePng(scene), ReadFileOrDie(odd + "jpeg_progressive.jpg"),
        ReadFileOrDie(odd + "jpeg_420.jpg"), ReadFileOrDie(odd + "webp_lossy.webp")}) {
    int asked = 0;
    ASSERT_TRUE(DecodeImage(bytes, {}, [&] { return ++asked > 0; }).ok());
    ASSERT_GE(asked, 1);
    for (int last = 1; last <= asked; ++last) {
      int now = 0;
      const auto image = DecodeImage(bytes, {}, [&] { return ++now < last; });
      EXPECT_TRUE(absl::IsCancelled(image.status())) << image.status();
      EXPECT_EQ(now, last) << "it is not asked again";
    }
  }
  int asked = 0;
  EXPECT_TRUE(
      absl::IsCancelled(DecodeImage(EncodePng(scene), {}, [&] { return ++asked < 10; }).status()));
}

TEST(DecodeImage, ForeignFormatsAreNamed) {
  const auto message = [](absl::string_view bytes) {
    return std::string(DecodeImage(bytes, ImageLimits()).status().message());
  };
  EXPECT_TRUE(absl::StrContains(message("GIF89a....."), "GIF"));
  EXPECT_TRUE(absl::StrContains(message("....ftypheic"), "HEIF"));
  EXPECT_TRUE(absl::StrContains(message("<svg xmlns=''/>"), "SVG"));
  EXPECT_TRUE(absl::StrContains(message("no picture at all"), "JPEG, PNG, WebP and BMP"));
  EXPECT_EQ(ReasonFor(""), "IMAGE_EMPTY");
}

TEST(DecodeImage, EveryCutOfEveryFormatIsRefused) {
  const std::string odd = GoldensDirectory() + "/images_odd/";
  for (const char* name : {"png_rgb.png", "webp_lossless.webp", "webp_lossy.webp", "bmp24.bmp",
                           "jpeg_420.jpg", "jpeg_progressive.jpg"}) {
    const std::string bytes = ReadFileOrDie(odd + name);
    const bool jpeg = absl::EndsWith(name, ".jpg");
    // All but the last bytes of a JPEG, which may be padding before its end marker.
    const size_t most = bytes.size() - (jpeg ? 4 : 3);
    for (size_t size = 0; size < most; size += 1 + most / 97) {
      EXPECT_NE(ReasonFor(absl::string_view(bytes).substr(0, size)), "accepted")
          << name << " cut at " << size;
    }
  }
}

}  // namespace
}  // namespace tessera::vision
