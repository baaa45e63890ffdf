#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "services/vision/vision_metrics.h"

namespace tessera::vision {

// "embedding hit 50.0 %" of what was answered since `before`; nullopt where nothing was. Pure.
std::optional<std::string> HitText(const VisionAnswers& now, const VisionAnswers& before);

// What was answered in the last `span`, since `before`, and what waits, in one line for the log;
// nullopt where there is nothing to say. Pure.
std::optional<std::string> LoadLine(const VisionAnswers& now, const VisionAnswers& before,
                                    const PipelineStats& stats, absl::Duration span);

}  // namespace tessera::vision
