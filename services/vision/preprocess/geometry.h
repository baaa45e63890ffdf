#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "services/vision/image/picture.h"
#include "services/vision/preprocess/config.h"
#include "services/vision/preprocess/resample.h"

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

// What a picture costs, from its header alone.
struct ImagePlan {
  int64_t rows = 0;     // that the tower gives
  int grid_height = 0;  // patches
  int grid_width = 0;
  int input_height = 0;  // pixels
  int input_width = 0;
};

// One row per patch, and one more when `class_row` is kept (vision_feature_select_strategy "full").
// Sizes come from the code that Preprocess uses. Errors: as Preprocess, and IMAGE_TOO_SMALL when
// the input is smaller than a patch. REQUIRES: patch_size > 0.
absl::StatusOr<ImagePlan> PlanImage(const ImageHeader& header, const PreprocessConfig& config,
                                    int patch_size, bool class_row = false);

}  // namespace tessera::vision
