// The header from the first bytes of a picture, of every length.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "services/vision/image/image.h"
#include "tests/services/vision/image/pictures.h"

namespace tessera::vision {
namespace {

using Prefix = absl::StatusOr<std::optional<ImageHeader>>;

Prefix ReadPrefix(absl::string_view picture, size_t length, const ImageLimits& limits = {}) {
  // A copy of its own, so that a sanitizer sees reads beyond it.
  const std::string bytes(picture.substr(0, length));
  return ReadHeaderOfPrefix(bytes, picture.size(), limits);
}

void ExpectEqualHeaders(const ImageHeader& a, const ImageHeader& b) {
  EXPECT_EQ(a.format, b.format);
  EXPECT_EQ(a.stored_width, b.stored_width);
  EXPECT_EQ(a.stored_height, b.stored_height);
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.height, b.height);
  EXPECT_EQ(a.orientation, b.orientation);
  EXPECT_EQ(a.channels, b.channels);
  EXPECT_EQ(a.bits, b.bits);
  EXPECT_EQ(a.alpha, b.alpha);
  EXPECT_EQ(a.decode_bytes, b.decode_bytes);
}

// What a header that is not sure of the orientation says once it is known.
ImageHeader Turned(ImageHeader header, const ImageHeader& whole) {
  header.orientation = whole.orientation;
  if (whole.orientation >= 5) std::swap(header.width, header.height);
  header.decode_bytes = std::max(header.decode_bytes, whole.decode_bytes);
  return header;
}

// Looks at every prefix of a good picture; the length at which its header was there.
size_t ExpectOneHeaderFromAllPrefixes(const std::string& picture) {
  const absl::StatusOr<ImageHeader> whole = ReadHeader(picture, ImageLimits());
  EXPECT_TRUE(whole.ok()) << whole.status();
  size_t first = picture.size();
  bool found = false;
  for (size_t length = 0; length <= picture.size(); ++length) {
    // All lengths around the header, then some.
    if (length > 4096 && picture.size() - length > 64) length += 97;
    SCOPED_TRACE(absl::StrCat("the first ", length, " of ", picture.size(), " bytes"));
    const Prefix header = ReadPrefix(picture, length);
    EXPECT_TRUE(header.ok()) << header.status();
    if (!header.ok()) return 0;
    EXPECT_TRUE(header->has_value() || !found) << "there before, and now not";
    if (!header->has_value()) continue;
    if (!found) first = length;
    found = true;
    const bool known = (*header)->orientation_known;
    ExpectEqualHeaders(known ? **header : Turned(**header, *whole), *whole);
  }
  EXPECT_TRUE(found);
  return first;
}

TEST(HeaderPrefixTest, EveryPrefixOfAGoodPictureGivesItsHeaderOrAsksForMore) {
  int pictures = 0;
  for (const char* folder : {"/images_odd", "/images_bad", "/preprocess/decode"}) {
    const std::string directory = GoldensDirectory() + folder;
    for (const std::string& name : FilesIn(directory)) {
      const std::string picture = ReadFileOrDie(directory + "/" + name);
      if (!DecodeImage(picture, ImageLimits()).ok()) continue;
      SCOPED_TRACE(name);
      ExpectOneHeaderFromAllPrefixes(picture);
      ++pictures;
    }
  }
  EXPECT_GT(pictures, 20);
}

// A prefix of a broken picture may ask for more, but says nothing that the whole does not say.
TEST(HeaderPrefixTest, ARefusalFromAPrefixIsThatOfTheWholePicture) {
  int refused_early = 0;
  const std::string directory = GoldensDirectory() + "/images_bad";
  for (const std::string& name : FilesIn(directory)) {
    const std::string picture = ReadFileOrDie(directory + "/" + name);
    const absl::Status whole = ReadHeader(picture, ImageLimits()).status();
    SCOPED_TRACE(name);
    for (size_t length = 0; length < std::min<size_t>(picture.size(), 3000); ++length) {
      const Prefix header = ReadPrefix(picture, length);
      if (header.ok()) continue;
      EXPECT_EQ(header.status(), whole) << length;
      ++refused_early;
      break;
    }
  }
  EXPECT_GT(refused_early, 10);
}

TEST(HeaderPrefixTest, ALimitIsSaidAsSoonAsTheHeaderIsThere) {
  for (const char* name : {"png_bomb_12000x12000.png", "jpeg_claims_64250x64250.jpg"}) {
    const std::string picture = ReadFileOrDie(GoldensDirectory() + "/images_bad/" + name);
    size_t length = 0;
    Prefix header = std::optional<ImageHeader>();
    while (header.ok()) header = ReadPrefix(picture, ++length);
    EXPECT_EQ(base::ReasonOf(header.status()), "IMAGE_TOO_LARGE");
    EXPECT_LT(length, 1000u);
  }
  ImageLimits limits;
  limits.max_bytes = 99;
  EXPECT_EQ(base::ReasonOf(ReadPrefix(std::string(100, 'x'), 0, limits).status()),
            "IMAGE_TOO_LARGE")
      << "from the size alone";
}

TEST(HeaderPrefixTest, TheHeaderComesBeforeThePixels) {
  const RgbImage scene = Scene(300, 200, 5);
  EXPECT_LT(ExpectOneHeaderFromAllPrefixes(EncodePng(scene)), 60u);
  EXPECT_LT(ExpectOneHeaderFromAllPrefixes(EncodeJpeg(300, 200, scene.rgb)), 1000u);
}

// Segments of 64 KiB, which libjpeg skips, before the frame.
TEST(HeaderPrefixTest, AJpegMayHaveMuchBeforeItsFrame) {
  const std::string plain = EncodeJpeg(30, 20, Scene(30, 20, 5).rgb);
  std::string large = plain.substr(0, 2);
  for (int i = 0; i < 5; ++i) {
    absl::StrAppend(&large, "\xFF\xE2\xFF\xFF", std::string(0xFFFF - 2, static_cast<char>(i)));
  }
  const size_t before = large.size();
  large += plain.substr(2);
  EXPECT_GT(ExpectOneHeaderFromAllPrefixes(large), before);
  const Prefix inside = ReadPrefix(large, before - 100);
  ASSERT_TRUE(inside.ok()) << inside.status();
  EXPECT_FALSE(inside->has_value());
}

TEST(HeaderPrefixTest, AnOrientationBehindThePixelsIsNotKnownBefore) {
  const std::string front = EncodePng(Scene(200, 100, 2), ExifBlock(6, false));
  const size_t exif = front.find("eXIf") - 4;
  const size_t exif_bytes = 12 + ExifBlock(6, false).size();
  std::string behind = front;
  behind.erase(exif, exif_bytes);
  behind.insert(behind.size() - 12, front.substr(exif, exif_bytes));
  for (const auto& [picture, known] : {std::pair(front, true), std::pair(behind, false)}) {
    const size_t first = ExpectOneHeaderFromAllPrefixes(picture);
    EXPECT_EQ((*ReadPrefix(picture, first))->orientation_known, known);
    EXPECT_EQ((*ReadPrefix(picture, first))->width, known ? 100 : 200);
    EXPECT_EQ((*ReadPrefix(picture, picture.size()))->width, 100);
  }
}

}  // namespace
}  // namespace tessera::vision
