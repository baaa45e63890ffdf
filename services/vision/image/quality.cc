#include "services/vision/image/quality.h"

#include <algorithm>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <vector>

namespace tessera::vision {
namespace {

constexpr double kLeastVariance =
    1e-3;  // keeps rounding in a one-coloured picture from being detail

// f32 [height, width], 0 to 255.
cv::Mat LumaOf(const uint8_t* planar, int height, int width) {
  cv::Mat luma(height, width, CV_32F);
  const int64_t plane = int64_t{height} * width;
  float* out = luma.ptr<float>();
  for (int64_t i = 0; i < plane; ++i) {
    out[i] = 0.299F * planar[i] + 0.587F * planar[plane + i] + 0.114F * planar[2 * plane + i];
  }
  return luma;
}

double VarianceOf(const cv::Mat& values) {
  cv::Scalar mean;
  cv::Scalar deviation;
  cv::meanStdDev(values, mean, deviation);
  return deviation[0] * deviation[0];
}

// The luma at the resolution the picture had, where resizing enlarged it. Crops and padding are not
// undone: the larger of the two ratios is right for a crop and lenient otherwise.
cv::Mat AtOwnResolution(const cv::Mat& luma, int original_width, int original_height) {
  const double factor = std::max(static_cast<double>(luma.cols) / std::max(1, original_width),
                                 static_cast<double>(luma.rows) / std::max(1, original_height));
  if (factor <= 1) return luma;
  const cv::Size size(std::max(1, cvRound(luma.cols / factor)),
                      std::max(1, cvRound(luma.rows / factor)));
  cv::Mat reduced;
  cv::resize(luma, reduced, size, 0, 0, cv::INTER_AREA);
  return reduced;
}

std::vector<std::string> Faults(const QualityScores& scores, const QualityLimits& limits) {
  std::vector<std::string> faults;
  const bool faint = scores.contrast < limits.dark_contrast;
  if (scores.sharpness < limits.blur_sharpness && scores.detail < limits.blur_detail) {
    faults.push_back("blur");
  }
  if (scores.exposure < limits.darker_than && faint) faults.push_back("dark");
  if (scores.exposure > limits.brighter_than && faint) faults.push_back("bright");
  if (scores.contrast < limits.flat_contrast && scores.sharpness < limits.flat_sharpness) {
    faults.push_back("flat");
  }
  if (std::min(scores.width, scores.height) < limits.small_side) faults.push_back("small");
  return faults;
}

}  // namespace

absl::string_view Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kRefuse:
      return "refuse";
  }
  return "";
}

QualityScores ScoreQuality(const uint8_t* planar, int height, int width, int original_width,
                           int original_height) {
  const cv::Mat luma = LumaOf(planar, height, width);
  cv::Scalar mean;
  cv::Scalar deviation;
  cv::meanStdDev(luma, mean, deviation);
  QualityScores scores;
  scores.exposure = mean[0] / 255;
  scores.contrast = deviation[0] / 255;
  scores.width = original_width;
  scores.height = original_height;
  const cv::Mat own = AtOwnResolution(luma, original_width, original_height);
  cv::Mat laplacian;
  cv::Laplacian(own, laplacian, CV_32F, /*ksize=*/1);
  scores.sharpness = VarianceOf(laplacian);
  const double variance = VarianceOf(own);
  scores.detail = scores.sharpness / (variance + kLeastVariance);
  return scores;
}

QualityVerdict Judge(const QualityScores& scores, const QualityThresholds& thresholds) {
  QualityVerdict verdict;
  verdict.reasons = Faults(scores, thresholds.refuse);
  if (!verdict.reasons.empty()) {
    verdict.verdict = Verdict::kRefuse;
    return verdict;
  }
  verdict.reasons = Faults(scores, thresholds.warn);
  if (!verdict.reasons.empty()) verdict.verdict = Verdict::kWarn;
  return verdict;
}

}  // namespace tessera::vision
