#include "common/ops/server_state.h"

#include "common/metrics/names.h"

namespace tessera::ops {

ServerState::ServerState(metrics::Metrics& metrics, base::Clock& clock, absl::string_view version)
    : clock_(clock),
      start_(clock.Now()),
      draining_(metrics.GetGauge(metrics::kDraining)),
      load_duration_(metrics.GetGauge(metrics::kModelLoadDuration)),
      process_(metrics) {
  metrics.GetGauge(metrics::kBuildInfo, {version}).Set(1);
  metrics.GetGauge(metrics::kStartTimestamp).Set(absl::ToDoubleSeconds(start_ - absl::UnixEpoch()));
}

void ServerState::SetLoaded() {
  load_duration_.Set(absl::ToDoubleSeconds(clock_.Now() - start_));
  loaded_.store(true, std::memory_order_release);
}

void ServerState::SetDraining() {
  drains_.store(true);
  draining_.Set(1);
}

std::vector<Check> ServerState::Readiness() const {
  return {
      {"model",
       [this] { return loaded() ? absl::OkStatus() : absl::UnavailableError("is being loaded"); }},
      {"serving",
       [this] { return drains_.load() ? absl::UnavailableError("draining") : absl::OkStatus(); }}};
}

}  // namespace tessera::ops
