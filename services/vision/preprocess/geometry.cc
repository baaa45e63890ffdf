#include "services/vision/preprocess/geometry.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::vision {
namespace {

constexpr int64_t kMaxInputPixels = 16'777'216;
constexpr int64_t kMaxResizedSide = int64_t{1} << 30;  // only the window of it is ever computed

// One axis of the centre crop. Offsets are those of the processors' NumPy code: a picture larger
// than the crop loses (size - crop) / 2 in front, rounded down; a smaller one gets (crop - size) /
// 2 zeros in front, rounded up.
void Crop(int size, int crop, Window& kept, int& offset) {
  if (size >= crop) {
    kept = {(size - crop) / 2, crop};
    offset = 0;
  } else {
    kept = {0, size};
    offset = (crop - size + 1) / 2;
  }
}

absl::Status TooLong(int64_t width, int64_t height) {
  return base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_TOO_LARGE",
                     absl::StrCat("the picture would become ", width, "x", height,
                                  " pixels for the model; the limit is ", kMaxInputPixels,
                                  " pixels: crop it to milder proportions"));
}

absl::Status Resize(const PreprocessConfig& config, Geometry& geometry) {
  int64_t width = geometry.padded_width;
  int64_t height = geometry.padded_height;
  switch (config.resize) {
    case PreprocessConfig::Resize::kNone:
      break;
    case PreprocessConfig::Resize::kExact:
      width = config.resize_width;
      height = config.resize_height;
      break;
    case PreprocessConfig::Resize::kShortestEdge: {
      const int64_t edge = config.shortest_edge;
      const bool upright = width <= height;
      const int64_t other = edge * std::max(width, height) / std::min(width, height);
      width = upright ? edge : other;
      height = upright ? other : edge;
      break;
    }
  }
  if (std::max(width, height) > kMaxResizedSide) return TooLong(width, height);
  geometry.resized_width = static_cast<int>(width);
  geometry.resized_height = static_cast<int>(height);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Geometry> PlanGeometry(int width, int height, const PreprocessConfig& config) {
  CHECK(width > 0 && height > 0);
  Geometry geometry;
  geometry.padded_width = config.pad_to_square ? std::max(width, height) : width;
  geometry.padded_height = config.pad_to_square ? std::max(width, height) : height;
  geometry.pad_left = (geometry.padded_width - width) / 2;
  geometry.pad_top = (geometry.padded_height - height) / 2;
  RETURN_IF_ERROR(Resize(config, geometry));
  geometry.width = config.center_crop ? config.crop_width : geometry.resized_width;
  geometry.height = config.center_crop ? config.crop_height : geometry.resized_height;
  if (int64_t{geometry.width} * geometry.height > kMaxInputPixels) {
    return TooLong(geometry.width, geometry.height);
  }
  Crop(geometry.resized_width, geometry.width, geometry.columns, geometry.left);
  Crop(geometry.resized_height, geometry.height, geometry.rows, geometry.top);
  return geometry;
}

absl::StatusOr<ImagePlan> PlanImage(const ImageHeader& header, const PreprocessConfig& config,
                                    int patch_size, bool class_row) {
  CHECK(patch_size > 0);
  ASSIGN_OR_RETURN(const Geometry geometry, PlanGeometry(header.width, header.height, config));
  ImagePlan plan;
  plan.input_height = geometry.height;
  plan.input_width = geometry.width;
  plan.grid_height = geometry.height / patch_size;
  plan.grid_width = geometry.width / patch_size;
  plan.rows = int64_t{plan.grid_height} * plan.grid_width + (class_row ? 1 : 0);
  if (plan.grid_height == 0 || plan.grid_width == 0) {
    return base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_TOO_SMALL",
                       absl::StrCat("the picture comes to ", geometry.width, "x", geometry.height,
                                    " pixels, less than one patch of ", patch_size));
  }
  return plan;
}

}  // namespace tessera::vision
