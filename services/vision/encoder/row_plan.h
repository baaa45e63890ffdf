#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/vision/image/picture.h"
#include "services/vision/preprocess/config.h"
#include "services/vision/preprocess/geometry.h"
#include "services/vision/tower/tower_config.h"

namespace tessera::vision {

// What a model's directory says about pictures; no weights.
struct VisionConfig {
  TowerConfig tower;
  PreprocessConfig preprocess;
};

// Both configs, and that they fit: INVALID_ARGUMENT (CONFIG_UNSUPPORTED) when preprocessing does
// not give the size that the tower's positions are made for.
absl::StatusOr<VisionConfig> LoadVisionConfig(const std::string& model_dir);

// What a picture with this header costs. Pure: no pixels, no weights.
absl::StatusOr<ImagePlan> PlanRows(const ImageHeader& header, const VisionConfig& config);

}  // namespace tessera::vision
