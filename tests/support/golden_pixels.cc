#include "tests/support/golden_pixels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "services/vision/image/image.h"
#include "services/vision/preprocess/preprocess.h"

namespace tessera::testing {
namespace {

constexpr double kPixelTolerance = 1e-5;

// As the golden says; empty when it does not say.
std::vector<float> Expected(const GoldenModel& model, const GoldenCase& golden, size_t index,
                            const vision::PreprocessConfig& config) {
  if (const TensorView* values = model.Find(golden, "pixel_values")) {
    const std::vector<float> all = ToFloats(*values);
    const auto each = static_cast<std::ptrdiff_t>(all.size() / golden.images.size());
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index) * each;
    return {begin, begin + each};
  }
  std::vector<float> pixels;
  if (const TensorView* u8 = model.Find(golden, absl::StrCat("pixels_u8.", index))) {
    const size_t plane = u8->bytes() / 3;
    for (size_t i = 0; i < u8->bytes(); ++i) {
      const double value = static_cast<double>(std::to_integer<int>(u8->data[i])) / 255;
      pixels.push_back(
          static_cast<float>((value - config.mean[i / plane]) / config.std[i / plane]));
    }
  }
  return pixels;
}

// Largest step between the 8-bit pixels; a large number when the counts differ.
int LargestStep(const std::vector<uint8_t>& got, const TensorView& expected) {
  if (got.size() != expected.bytes()) return 1000;
  int largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(got[i] - std::to_integer<int>(expected.data[i])));
  }
  return largest;
}

}  // namespace

std::vector<float> PixelsOf(const GoldenModel& model, const GoldenCase& golden, size_t index,
                            const vision::VisionConfig& config) {
  const std::string path = absl::StrCat(model.dir, "/inputs/", golden.images[index]);
  const std::string bytes = base::ReadFile(path).value();
  const vision::ImageHeader header = vision::ReadHeader(bytes, {}).value();
  vision::Preprocessed got =
      vision::Preprocess(vision::DecodeImage(bytes, {}).value(), config.preprocess).value();
  EXPECT_EQ(vision::PlanRows(header, config).value().rows, golden.image_rows[index]) << path;
  const bool exact = header.format != vision::ImageFormat::kJpeg && !header.alpha;
  if (const TensorView* u8 = model.Find(golden, absl::StrCat("pixels_u8.", index))) {
    EXPECT_LE(LargestStep(got.u8, *u8), exact ? 0 : 1) << path;
  }
  std::vector<float> expected = Expected(model, golden, index, config.preprocess);
  if (expected.empty()) return std::move(got.pixel_values);
  if (!exact) return expected;
  EXPECT_LE(LargestDifference(got.pixel_values, expected), kPixelTolerance) << path;
  return std::move(got.pixel_values);
}

}  // namespace tessera::testing
