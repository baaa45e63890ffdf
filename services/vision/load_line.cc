#include "services/vision/load_line.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::vision {

std::optional<std::string> HitText(const VisionAnswers& now, const VisionAnswers& before) {
  const int64_t known = now.known - before.known, computed = now.computed - before.computed;
  if (known + computed == 0) return std::nullopt;
  return absl::StrFormat("embedding hit %.1f %%", 100.0 * known / (known + computed));
}

std::optional<std::string> LoadLine(const VisionAnswers& now, const VisionAnswers& before,
                                    const PipelineStats& stats, absl::Duration span) {
  const std::optional<std::string> hit = HitText(now, before);
  if (!hit && stats.pending_images == 0) return std::nullopt;
  const int64_t pictures = now.known - before.known + now.computed - before.computed;
  std::string line = absl::StrFormat("pictures %.1f/s, pending %d",
                                     static_cast<double>(pictures) / absl::ToDoubleSeconds(span),
                                     stats.pending_images);
  if (hit) absl::StrAppend(&line, ", ", *hit);
  return line;
}

}  // namespace tessera::vision
