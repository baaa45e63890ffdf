// Broken bytes never crash, never loop and never take memory beyond the limits. Deterministic: the
// same mutations in every run.
#include <gtest/gtest.h>

#include <random>

#include "common/base/error.h"
#include "services/vision/image/exif.h"
#include "services/vision/image/image.h"
#include "tests/services/vision/image/pictures.h"

namespace tessera::vision {
namespace {

constexpr size_t kMostFileBytes = 8192;
constexpr int kMutationsPerFile = 150;
#ifdef TESSERA_SANITIZED
constexpr int64_t kMostGrowth = int64_t{1} << 30;  // freed memory is kept back for a while
#else
constexpr int64_t kMostGrowth = int64_t{48} << 20;
#endif

ImageLimits SmallLimits() {
  ImageLimits limits;
  limits.max_side = 4096;
  limits.max_pixels = 1 << 20;
  limits.max_decode_bytes = size_t{16} << 20;
  return limits;
}

std::string Mutate(std::string bytes, std::mt19937& random) {
  const auto below = [&random](size_t limit) { return random() % limit; };
  const int edits = 1 + static_cast<int>(below(4));
  for (int i = 0; i < edits && !bytes.empty(); ++i) {
    // Headers are where the lies are: half of the edits go to the first 128 bytes.
    const size_t reach = below(2) == 0 ? std::min<size_t>(128, bytes.size()) : bytes.size();
    const size_t at = below(reach);
    switch (below(5)) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 2:
        bytes[at] = below(2) == 0 ? '\xFF' : '\0';
        break;
      case 3:
        bytes.erase(at, 1 + below(16));
        break;
      default:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(32)));
    }
  }
  return bytes;
}

// Either a typed error, or a picture of the size that the header said.
void ExpectSane(const std::string& bytes) {
  const ImageLimits limits = SmallLimits();
  auto header = ReadHeader(bytes, limits);
  auto image = DecodeImage(bytes, limits);
  for (const size_t part : {3, 8, 13}) {  // of 16: a beginning asks for more, or is as the whole
    const auto begun = ReadHeaderOfPrefix(
        absl::string_view(bytes).substr(0, bytes.size() * part / 16), bytes.size(), limits);
    EXPECT_TRUE(begun.ok() || begun.status() == header.status()) << begun.status();
    if (begun.ok() && *begun && header.ok()) {
      EXPECT_EQ((*begun)->stored_width, header->stored_width);
      EXPECT_EQ((*begun)->stored_height, header->stored_height);
    }
  }
  if (!image.ok()) {
    EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument) << image.status();
    EXPECT_FALSE(base::ReasonOf(image.status()).empty());
    EXPECT_LT(image.status().message().size(), 1000u);
    return;
  }
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(image->width, header->width);
  EXPECT_EQ(image->height, header->height);
  EXPECT_EQ(image->rgb.size(), static_cast<size_t>(image->width) * image->height * 3);
}

TEST(Mutation, BrokenPicturesNeitherCrashNorGrow) {
  std::mt19937 random(20261);
  int files = 0;
  ResetPeak();
  const int64_t before = PeakResidentBytes();
  for (const char* folder : {"/images_odd", "/images_bad", "/preprocess/decode"}) {
    const std::string directory = GoldensDirectory() + folder;
    for (const std::string& name : FilesIn(directory)) {
      const std::string bytes = ReadFileOrDie(directory + "/" + name);
      if (bytes.size() > kMostFileBytes) continue;
      SCOPED_TRACE(name);
      for (int i = 0; i < kMutationsPerFile; ++i) ExpectSane(Mutate(bytes, random));
      ++files;
    }
  }
  EXPECT_GT(files, 0);
  EXPECT_LT(PeakResidentBytes() - before, kMostGrowth);
}

TEST(Mutation, BrokenExifIsOrientationOneToEight) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const int orientation = ExifOrientation(Mutate(ExifBlock(6, i % 2 == 0), random));
    EXPECT_GE(orientation, 1);
    EXPECT_LE(orientation, 8);
  }
}

}  // namespace
}  // namespace tessera::vision
