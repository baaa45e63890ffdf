#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/vision/image/quality.h"

namespace tessera::vision {

// Scores as a record holds them, by name, and back. Names that are absent leave the default.
std::map<std::string, double> ScoreMap(const QualityScores& scores);
QualityScores ScoresFromMap(const std::map<std::string, double>& map);

// What follows from a picture's scores today. A value; any thread.
class QualityGate {
 public:
  QualityGate() = default;  // off
  QualityGate(bool enabled, const QualityThresholds& thresholds)
      : enabled_(enabled), thresholds_(thresholds) {}

  // nullopt when the gate is off: nothing is judged.
  std::optional<QualityVerdict> Judge(const QualityScores& scores) const;
  // INVALID_ARGUMENT, reason IMAGE_QUALITY, when the verdict is to refuse; it names what is wrong.
  absl::Status Check(const QualityScores& scores) const;
  // Every number, as text.
  std::string Canonical() const;

 private:
  bool enabled_ = false;
  QualityThresholds thresholds_;
};

}  // namespace tessera::vision
