#include "services/vision/vision_flags.h"

#include "common/flags/flags.h"

namespace tessera::vision {
namespace {

using flags::FlagValue;
using flags::OneOf;
using flags::OnOff;
using flags::Value;
using flags::Within;

constexpr int kMaxSide = 1'000'000;
constexpr int64_t kMaxPixels = 1'000'000'000'000;

FlagValue RowType(DType& target) {
  return OneOf<DType>(target, {{"f16", DType::kF16}, {"int8", DType::kI8}, {"f32", DType::kF32}});
}

// A limit of the picture's quality; NaN would never refuse.
FlagValue Limit(double& target) { return Within(target, 0.0, 1e9); }

}  // namespace

std::vector<flags::Flag> VisionFlags(VisionOptions& vision) {
  QualityLimits& refuse = vision.quality_thresholds.refuse;
  QualityLimits& warn = vision.quality_thresholds.warn;
  ImageLimits& limits = vision.image_limits;
  return {
      {"embedding_dtype", RowType(vision.embedding_dtype),
       "dtype of stored rows: f16, int8 (f16 where a row would lose over 1 %) or f32"},
      {"quality_gate", OnOff(vision.quality_gate), "on: bad pictures are warned of or refused"},
      {"quality_refuse_sharpness", Limit(refuse.blur_sharpness), "refuse below (blur)"},
      {"quality_refuse_exposure", Limit(refuse.darker_than), "refuse below (dark)"},
      {"quality_refuse_brightness", Limit(refuse.brighter_than), "refuse above (bright)"},
      {"quality_refuse_contrast", Limit(refuse.flat_contrast), "refuse below (flat)"},
      {"quality_refuse_side", Within(refuse.small_side, 0, kMaxSide),
       "refuse below (small), pixels"},
      {"quality_warn_sharpness", Limit(warn.blur_sharpness), "warn below (blur)"},
      {"quality_warn_exposure", Limit(warn.darker_than), "warn below (dark)"},
      {"quality_warn_brightness", Limit(warn.brighter_than), "warn above (bright)"},
      {"quality_warn_contrast", Limit(warn.flat_contrast), "warn below (flat)"},
      {"quality_warn_side", Within(warn.small_side, 0, kMaxSide), "warn below (small), pixels"},
      {"max_image_pixels", Within(limits.max_pixels, int64_t{1}, kMaxPixels), "of one, decoded"},
      {"max_image_side", Within(limits.max_side, 1, kMaxSide), "pixels of the longer side"},
      {"max_pending_images", Value(vision.max_pending_images), "waiting to be encoded"},
  };
}

}  // namespace tessera::vision
