#include "services/vision/preprocess/preprocess.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/base/error.h"
#include "services/vision/preprocess/geometry.h"
#include "tests/services/vision/image/pictures.h"

namespace tessera::vision {
namespace {

PreprocessConfig CropConfig(int side) {
  PreprocessConfig config;
  config.resize = PreprocessConfig::Resize::kShortestEdge;
  config.shortest_edge = side;
  config.center_crop = true;
  config.crop_height = config.crop_width = side;
  config.mean = {0.5, 0.4, 0.3};
  config.std = {0.2, 0.25, 0.5};
  return config;
}

PreprocessConfig PadConfig(int side) {
  PreprocessConfig config = CropConfig(side);
  config.pad_to_square = true;
  config.pad_color = {122, 116, 104};
  return config;
}

Preprocessed PreprocessOrDie(const RgbImage& image, const PreprocessConfig& config) {
  auto result = Preprocess(image, config);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : Preprocessed();
}

uint8_t At(const Preprocessed& p, int c, int y, int x) {
  return p.u8[(static_cast<size_t>(c) * p.height + y) * p.width + x];
}

double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

RgbImage ResampleWhole(const RgbImage& in, int width, int height, Filter filter) {
  const ResampleShape shape = {in.width, in.height, width, height, {0, width}, {0, height}};
  const auto row = [&in](int y) { return in.rgb.data() + int64_t{y} * in.width * 3; };
  return {width, height, Resample(row, shape, filter)};
}

TEST(Resample, ThinLinesSurviveShrinking) {
  RgbImage lines = Filled(640, 640, 0, 0, 0);
  for (int y = 0; y < 640; ++y) {
    for (int x = 8; x < 640; x += 16) {
      for (int c = 0; c < 3; ++c) lines.rgb[(y * 640 + x) * 3 + c] = 255;
    }
  }
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
    const RgbImage small = ResampleWhole(lines, 40, 40, filter);
    double mean = 0;
    for (const uint8_t value : small.rgb) mean += value;
    EXPECT_NEAR(mean / static_cast<double>(small.rgb.size()), 15.9, 0.5);
  }
}

TEST(Resample, AWindowEqualsThatPartOfTheWhole) {
  std::mt19937 random(11);
  const auto between = [&random](int low, int high) {
    return low + static_cast<int>(random() % (high - low + 1));
  };
  for (int i = 0; i < 50; ++i) {
    const RgbImage in = Scene(between(1, 90), between(1, 90), i);
    const int width = between(1, 120);
    const int height = between(1, 120);
    const Filter filter = static_cast<Filter>(between(1, 3));
    ResampleShape shape = {in.width, in.height, width, height, {}, {}};
    shape.columns.begin = between(0, width - 1);
    shape.columns.size = between(1, width - shape.columns.begin);
    shape.rows.begin = between(0, height - 1);
    shape.rows.size = between(1, height - shape.rows.begin);
    const auto row = [&in](int y) { return in.rgb.data() + int64_t{y} * in.width * 3; };
    const std::vector<uint8_t> window = Resample(row, shape, filter);
    const RgbImage whole = ResampleWhole(in, width, height, filter);
    for (int y = 0; y < shape.rows.size; ++y) {
      const uint8_t* expected =
          &whole.rgb[((y + shape.rows.begin) * int64_t{width} + shape.columns.begin) * 3];
      const uint8_t* got = &window[static_cast<size_t>(y) * shape.columns.size * 3];
      ASSERT_TRUE(std::equal(got, got + shape.columns.size * 3, expected)) << "case " << i;
    }
  }
}

TEST(Resample, OneColourStaysThatColour) {
  for (const int side : {1, 7, 333, 4999}) {
    const RgbImage out = ResampleWhole(Filled(side, 5, 255, 128, 1), 60, 60, Filter::kLanczos);
    EXPECT_EQ(Sha256Hex(out), Sha256Hex(Filled(60, 60, 255, 128, 1))) << side;
  }
}

TEST(Preprocess, SmallestShapesGiveThreePlanesOfTheirColour) {
  const int sizes[][2] = {{1, 1}, {3, 3}, {1, 3}, {3, 1}, {3, 224}, {224, 3}};
  for (const auto& [width, height] : sizes) {
    const Preprocessed out = PreprocessOrDie(Filled(width, height, 200, 100, 50), CropConfig(56));
    ASSERT_EQ(out.u8.size(), 3u * 56 * 56);
    const uint8_t color[3] = {200, 100, 50};
    for (int c = 0; c < 3; ++c) {
      EXPECT_EQ(At(out, c, 0, 0), color[c]);
      EXPECT_EQ(At(out, c, 55, 55), color[c]);
      EXPECT_EQ(At(out, c, 28, 28), color[c]);
    }
  }
}

TEST(Preprocess, ASquareAndItsNeighboursLookTheSame) {
  const PreprocessConfig config = CropConfig(336);
  const Preprocessed square = PreprocessOrDie(Scene(512, 512, 5), config);
  const int sizes[][2] = {{511, 512}, {512, 511}, {336, 336}};
  for (const auto& [width, height] : sizes) {
    const Preprocessed other = PreprocessOrDie(Scene(width, height, 5), config);
    EXPECT_GT(Cosine(square.pixel_values, other.pixel_values), 0.99) << width << "x" << height;
  }
}

TEST(Preprocess, PaddingKeepsBothEndsAndFillsWithTheMeanColour) {
  RgbImage wide = Filled(1000, 200, 30, 30, 30);
  for (int y = 0; y < 200; ++y) {
    for (int x = 0; x < 50; ++x) wide.rgb[(y * 1000 + x) * 3] = 255;
    for (int x = 950; x < 1000; ++x) wide.rgb[(y * 1000 + x) * 3 + 1] = 255;
  }
  const Preprocessed padded = PreprocessOrDie(wide, PadConfig(336));
  EXPECT_GT(At(padded, 0, 168, 4), 240);    // the left end, red
  EXPECT_GT(At(padded, 1, 168, 331), 240);  // the right end, green
  for (int c = 0; c < 3; ++c) EXPECT_EQ(At(padded, c, 2, 168), PadConfig(336).pad_color[c]);
  const Preprocessed cropped = PreprocessOrDie(wide, CropConfig(336));
  EXPECT_LT(At(cropped, 0, 168, 4), 60);  // what the other mode loses
}

TEST(Preprocess, TooSmallForTheCropIsSetIntoZeros) {
  PreprocessConfig config = CropConfig(10);
  config.resize = PreprocessConfig::Resize::kNone;
  const Preprocessed out = PreprocessOrDie(Filled(4, 5, 9, 9, 9), config);
  ASSERT_EQ(out.width, 10);
  int set = 0;
  for (const uint8_t value : out.u8) set += value == 9 ? 1 : 0;
  EXPECT_EQ(set, 3 * 4 * 5);
  EXPECT_EQ(At(out, 0, 3, 3), 9);  // (10 - 5) / 2 rounded up, (10 - 4) / 2
  EXPECT_EQ(At(out, 0, 2, 3), 0);
  EXPECT_EQ(At(out, 0, 7, 6), 9);
  EXPECT_EQ(At(out, 0, 8, 6), 0);
}

TEST(Preprocess, SwitchesChooseTheArithmetic) {
  PreprocessConfig config = CropConfig(2);
  const RgbImage image = Filled(2, 2, 255, 51, 102);
  const auto values = [&] { return PreprocessOrDie(image, config).pixel_values; };
  EXPECT_NEAR(values()[0], (1.0 - 0.5) / 0.2, 1e-6);
  EXPECT_NEAR(values()[4], (0.2 - 0.4) / 0.25, 1e-6);
  config.normalize = false;
  EXPECT_NEAR(values()[8], 0.4, 1e-6);
  config.rescale = false;
  EXPECT_EQ(values()[0], 255);
  config.normalize = true;
  EXPECT_NEAR(values()[4], (51 - 0.4) / 0.25, 1e-4);
}

TEST(Preprocess, ExtremeProportionsTakeLittleMemory) {
  constexpr int64_t kMostGrowth = int64_t{64} << 20;
  const RgbImage strip = Filled(16384, 1, 40, 80, 120);
  for (const PreprocessConfig& config : {CropConfig(336), PadConfig(336)}) {
    ResetPeak();
    const int64_t before = PeakResidentBytes();
    EXPECT_EQ(PreprocessOrDie(strip, config).width, 336);
    EXPECT_LT(PeakResidentBytes() - before, kMostGrowth);
  }
  PreprocessConfig uncropped = CropConfig(336);
  uncropped.center_crop = false;
  EXPECT_EQ(base::ReasonOf(Preprocess(strip, uncropped).status()), "IMAGE_TOO_LARGE");
}

ImageHeader HeaderOf(int width, int height) {
  ImageHeader header;
  header.width = width;
  header.height = height;
  return header;
}

TEST(PlanImage, EqualsWhatPreprocessingGivesForRandomSizes) {
  std::mt19937 random(3);
  PreprocessConfig uncropped = CropConfig(42);
  uncropped.center_crop = false;
  PreprocessConfig exact = CropConfig(70);
  exact.resize = PreprocessConfig::Resize::kExact;
  exact.resize_height = 56;
  exact.resize_width = 84;
  exact.center_crop = false;
  const PreprocessConfig configs[] = {CropConfig(56), PadConfig(70), uncropped, exact};
  for (int i = 0; i < 200; ++i) {
    const int longest = i % 4 == 0 ? 900 : 120;
    const int width = 1 + static_cast<int>(random() % longest);
    const int height = 1 + static_cast<int>(random() % longest);
    const PreprocessConfig& config = configs[i % 3 == 0 ? 2 : random() % 4];
    auto plan = PlanImage(HeaderOf(width, height), config, 14);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const Preprocessed out = PreprocessOrDie(Filled(width, height, 1, 2, 3), config);
    EXPECT_EQ(plan->input_height, out.height) << width << "x" << height;
    EXPECT_EQ(plan->input_width, out.width) << width << "x" << height;
    EXPECT_EQ(plan->rows, int64_t{out.height / 14} * (out.width / 14));
  }
}

TEST(PlanImage, ATurnedPictureHasATallGrid) {
  const std::string bytes = EncodePng(Scene(200, 100, 8), ExifBlock(6, true));
  auto header = ReadHeader(bytes, ImageLimits());
  ASSERT_TRUE(header.ok()) << header.status();
  PreprocessConfig config = CropConfig(56);
  config.center_crop = false;
  auto plan = PlanImage(*header, config, 14);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->grid_height, plan->grid_width);
  const Preprocessed out = PreprocessOrDie(DecodeOrDie(bytes), config);
  EXPECT_EQ(plan->input_height, out.height);
  EXPECT_EQ(plan->input_width, out.width);
}

TEST(PlanImage, TheClassRowIsCountedWhereItIsKept) {
  auto plan = PlanImage(HeaderOf(640, 480), CropConfig(336), 14);
  auto full = PlanImage(HeaderOf(640, 480), CropConfig(336), 14, /*class_row=*/true);
  ASSERT_TRUE(plan.ok() && full.ok());
  EXPECT_EQ(plan->rows, 576);
  EXPECT_EQ(full->rows, 577);
}

TEST(PlanImage, LessThanOnePatchIsRefused) {
  EXPECT_EQ(base::ReasonOf(PlanImage(HeaderOf(64, 64), CropConfig(8), 14).status()),
            "IMAGE_TOO_SMALL");
}

}  // namespace
}  // namespace tessera::vision
