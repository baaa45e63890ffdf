#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// How usable a picture is to the model. Pure; any thread. Scores are kept beside the embedding;
// verdicts are made from them whenever they are read, by the thresholds of that moment.
namespace tessera::vision {

// Taken on what the model sees: the picture resized and cropped to the model's input. Luma is
// 0.299 R + 0.587 G + 0.114 B.
struct QualityScores {
  // Variance of the Laplacian of the luma in steps of 1/255. A picture that was enlarged for the
  // model is first brought back to its own resolution: being small is not being blurred.
  double sharpness = 0;
  double detail = 0;    // sharpness over the variance of that luma, so contrast cancels
  double exposure = 0;  // mean luma, 0 black to 1 white
  double contrast = 0;  // standard deviation of the luma, 0 to 0.5
  int width = 0;        // of the picture before resizing, upright, in pixels
  int height = 0;
};

// When a picture is "bad" in one respect. Every number given must be undercut (for `brighter_than`:
// exceeded), so that a night view with lights, a page with one line of text or a plain sky passes.
struct QualityLimits {
  double blur_sharpness = 0;
  double blur_detail = 0;
  double darker_than = 0;    // exposure
  double brighter_than = 1;  // exposure
  double dark_contrast = 0;  // "dark" and "bright" need a contrast below this
  double flat_contrast = 0;
  double flat_sharpness = 0;
  int small_side = 0;  // pixels, the shorter side before resizing
};

// The defaults are measured: README.md has the shares.
struct QualityThresholds {
  QualityLimits warn = {60, 0.03, 0.16, 0.97, 0.07, 0.045, 100, 12};
  QualityLimits refuse = {22, 0.016, 0.125, 0.985, 0.06, 0.038, 100, 4};
};

enum class Verdict { kPass, kWarn, kRefuse };

absl::string_view Name(Verdict verdict);  // "pass", "warn", "refuse"

struct QualityVerdict {
  Verdict verdict = Verdict::kPass;
  // What is wrong, of "blur", "dark", "bright", "flat", "small" in this order; with kRefuse only
  // what refuses. Empty with kPass.
  std::vector<std::string> reasons;
};

// `planar`: u8 [3, height, width], red first. `original_*`: upright size before resizing.
// REQUIRES: height and width positive.
QualityScores ScoreQuality(const uint8_t* planar, int height, int width, int original_width,
                           int original_height);

QualityVerdict Judge(const QualityScores& scores, const QualityThresholds& thresholds);

}  // namespace tessera::vision
