#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "services/vision/preprocess/resample.h"

namespace tessera::vision {

// How a model's own files say that a picture is prepared. In the order in which it is applied: pad,
// resize, crop, rescale, normalize.
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

}  // namespace tessera::vision
