#pragma once

#include "absl/status/statusor.h"
#include "services/vision/preprocess/preprocess.h"

namespace tessera::vision {

// Where the pixels of a picture go. The one place that computes sizes.
struct Geometry {
  int padded_width = 0;  // of the square, or of the picture where nothing is padded
  int padded_height = 0;
  int pad_left = 0;  // of the picture inside it
  int pad_top = 0;
  int resized_width = 0;
  int resized_height = 0;
  Window columns;  // of the resized picture, kept by the crop
  Window rows;
  int left = 0;  // of that window inside the input; zeros around it
  int top = 0;
  int width = 0;  // of the input
  int height = 0;
};

// `width`, `height`: upright. Errors as Preprocess. REQUIRES: both positive.
absl::StatusOr<Geometry> PlanGeometry(int width, int height, const PreprocessConfig& config);

}  // namespace tessera::vision
