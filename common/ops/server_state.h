#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/metrics/metrics.h"
#include "common/ops/handlers.h"
#include "common/ops/process_metrics.h"

namespace tessera::ops {

// What every server process tells of itself: whether its model is loaded and does what it must,
// whether it drains, its build and start, the process_* series. Any thread but Update's, which is
// one at a time.
class ServerState {
 public:
  // Loading from now on. `has_model`: there are series of a model's load and canary. `metrics` and
  // `clock` outlive it.
  ServerState(metrics::Metrics& metrics, base::Clock& clock, absl::string_view version,
              bool has_model = true);

  // What the check of a loaded model against its canary file came to; `present`: there is one. Not
  // OK: this process is never ready, and says why. Without a file: a warning. REQUIRES: has_model;
  // once at most, before SetLoaded.
  void SetCanary(bool present, absl::Status status);
  const absl::Status& canary() const { return canary_; }  // from SetLoaded on
  void SetLoaded();
  bool loaded() const { return loaded_.load(std::memory_order_acquire); }
  bool drains() const { return drains_.load(); }
  // "ready", or "never ready: canary: " and why: the last line that a process prints when it has
  // started.
  std::string ReadyLine() const;
  // From now on; there is no way back.
  void SetDraining();

  // OK, or why nothing new should be sent: the first condition of Readiness that does not hold.
  absl::Status Health() const;
  // The conditions of /readyz: "model" (loaded), "canary" (passed, or there is none) and "serving"
  // (not draining). They use this object.
  std::vector<Check> Readiness() const;
  // Brings the process_* series and the count of lost lines up to date.
  void Update();

 private:
  base::Clock& clock_;
  const absl::Time start_;
  const metrics::Counter lost_lines_;
  const metrics::Gauge draining_;
  std::optional<metrics::Gauge> load_duration_, canary_present_;
  ProcessMetrics process_;
  absl::Status canary_;  // constant once loaded_
  std::atomic<bool> loaded_{false};
  std::atomic<bool> drains_{false};
};

}  // namespace tessera::ops
