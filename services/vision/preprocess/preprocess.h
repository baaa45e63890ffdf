#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "services/vision/image/picture.h"
#include "services/vision/preprocess/config.h"

// From a decoded picture to the numbers a tower takes, exactly as the model's own configuration
// says and as the Pillow path of its image processor computes it. Pure; any thread.
namespace tessera::vision {

// What the tower takes for one picture.
struct Preprocessed {
  int height = 0;
  int width = 0;
  std::vector<uint8_t> u8;          // [3, height, width], before rescaling
  std::vector<float> pixel_values;  // [3, height, width]
};

// INVALID_ARGUMENT, IMAGE_TOO_LARGE, when the result would be unreasonably long (no crop and a
// picture of extreme proportions).
absl::StatusOr<Preprocessed> Preprocess(const RgbImage& image, const PreprocessConfig& config);

}  // namespace tessera::vision
