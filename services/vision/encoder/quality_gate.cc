#include "services/vision/encoder/quality_gate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"

namespace tessera::vision {
namespace {

std::string Text(const QualityLimits& limits) {
  return absl::StrFormat("%.17g,%.17g,%.17g,%.17g,%.17g,%.17g,%.17g,%d", limits.blur_sharpness,
                         limits.blur_detail, limits.darker_than, limits.brighter_than,
                         limits.dark_contrast, limits.flat_contrast, limits.flat_sharpness,
                         limits.small_side);
}

}  // namespace

std::map<std::string, double> ScoreMap(const QualityScores& scores) {
  return {{"sharpness", scores.sharpness},
          {"detail", scores.detail},
          {"exposure", scores.exposure},
          {"contrast", scores.contrast},
          {"width", static_cast<double>(scores.width)},
          {"height", static_cast<double>(scores.height)}};
}

QualityScores ScoresFromMap(const std::map<std::string, double>& map) {
  const auto get = [&map](const char* name) {
    const auto it = map.find(name);
    return it == map.end() ? 0.0 : it->second;
  };
  const auto side = [&get](const char* name) {
    const double value = get(name);
    return value >= 0 && value <= 1e9 ? static_cast<int>(value) : 0;
  };
  QualityScores scores;
  scores.sharpness = get("sharpness");
  scores.detail = get("detail");
  scores.exposure = get("exposure");
  scores.contrast = get("contrast");
  scores.width = side("width");
  scores.height = side("height");
  return scores;
}

std::optional<QualityVerdict> QualityGate::Judge(const QualityScores& scores) const {
  if (!enabled_) return std::nullopt;
  return vision::Judge(scores, thresholds_);
}

absl::Status QualityGate::Check(const QualityScores& scores) const {
  const std::optional<QualityVerdict> verdict = Judge(scores);
  if (!verdict || verdict->verdict != Verdict::kRefuse) return absl::OkStatus();
  return base::Error(
      absl::StatusCode::kInvalidArgument, "IMAGE_QUALITY",
      absl::StrFormat("the picture is too bad to answer about (%s): sharpness %.3g, exposure "
                      "%.3g, contrast %.3g, %dx%d pixels; send a better one",
                      absl::StrJoin(verdict->reasons, ", "), scores.sharpness, scores.exposure,
                      scores.contrast, scores.width, scores.height));
}

std::string QualityGate::Canonical() const {
  if (!enabled_) return "off";
  return absl::StrCat("warn ", Text(thresholds_.warn), " refuse ", Text(thresholds_.refuse));
}

}  // namespace tessera::vision
