#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "services/vision/image/image.h"
#include "services/vision/preprocess/resample.h"

// From a decoded picture to the numbers a tower takes, exactly as the model's own configuration
// says and as the Pillow path of its image processor computes it. Pure; any thread.
namespace tessera::vision {

// In the order in which it is applied: pad, resize, crop, rescale, normalize.
struct PreprocessConfig {
  enum class Resize { kNone, kShortestEdge, kExact };

  std::string type;                    // image_processor_type, as the file says it
  bool pad_to_square = false;          // the picture in the middle of a square of its longer side
  std::array<uint8_t, 3> pad_color{};  // RGB
  Resize resize = Resize::kNone;
  int shortest_edge = 0;  // pixels; the other side is long * shortest_edge / short, rounded down
  int resize_height = 0;  // kExact
  int resize_width = 0;
  Filter filter = Filter::kBicubic;
  bool center_crop = false;  // what is too small is set into zeros
  int crop_height = 0;
  int crop_width = 0;
  bool rescale = true;
  double rescale_factor = 1.0 / 255;
  bool normalize = true;  // (value - mean) / std
  std::array<double, 3> mean{};
  std::array<double, 3> std{};

  // Reads `image_processor` in processor_config.json, or, where that is absent,
  // preprocessor_config.json. NOT_FOUND when there is neither; INVALID_ARGUMENT, which names key,
  // value and what is supported: MODEL_CONFIG_BAD for a broken value, MODEL_UNSUPPORTED for one
  // that we do not know.
  static absl::StatusOr<PreprocessConfig> Load(const std::string& model_dir);
  static absl::StatusOr<PreprocessConfig> FromJson(const base::Json& json);

  // Every number that changes a pixel, the fixed rules of decoding included: one line, equal for
  // equal results. Part of the embedding key.
  std::string Canonical() const;
};

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
