#include "services/vision/encoder/row_plan.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::vision {

absl::StatusOr<VisionConfig> LoadVisionConfig(const std::string& model_dir) {
  VisionConfig config;
  ASSIGN_OR_RETURN(config.tower, LoadTowerConfig(model_dir));
  ASSIGN_OR_RETURN(config.preprocess, PreprocessConfig::Load(model_dir));
  for (const auto& [width, height] : {std::pair(640, 480), std::pair(480, 640)}) {
    ImageHeader header;
    header.stored_width = header.width = width;
    header.stored_height = header.height = height;
    if (auto plan = PlanRows(header, config); !plan.ok()) {
      return base::Annotate(plan.status(), model_dir);
    }
  }
  return config;
}

absl::StatusOr<ImagePlan> PlanRows(const ImageHeader& header, const VisionConfig& config) {
  const TowerConfig& tower = config.tower;
  ASSIGN_OR_RETURN(const ImagePlan plan,
                   PlanImage(header, config.preprocess, static_cast<int>(tower.patch_size),
                             tower.keep_class_row));
  if (plan.input_height != tower.image_size || plan.input_width != tower.image_size) {
    return base::BadField(
        "vision_config.image_size", "CONFIG_UNSUPPORTED",
        absl::StrCat("preprocessing makes ", plan.input_width, "x", plan.input_height,
                     " pixels of a picture of ", header.width, "x", header.height,
                     ", the tower takes ", tower.image_size, "x", tower.image_size,
                     " only: crop_size or size must say so"));
  }
  return plan;
}

}  // namespace tessera::vision
