#include "common/ops/server_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/metrics/names.h"

namespace tessera::ops {

ServerState::ServerState(metrics::Metrics& metrics, base::Clock& clock, absl::string_view version,
                         bool has_model)
    : clock_(clock),
      start_(clock.Now()),
      lost_lines_(metrics.GetCounter(metrics::kLogLinesDropped)),
      draining_(metrics.GetGauge(metrics::kDraining)),
      process_(metrics) {
  if (has_model) {
    load_duration_ = metrics.GetGauge(metrics::kModelLoadDuration);
    canary_present_ = metrics.GetGauge(metrics::kCanaryPresent);
  }
  metrics.GetGauge(metrics::kBuildInfo, {version}).Set(1);
  metrics.GetGauge(metrics::kStartTimestamp).Set(absl::ToDoubleSeconds(start_ - absl::UnixEpoch()));
}

void ServerState::Update() {
  process_.Update();
  const double more = static_cast<double>(base::LostLogLines()) - lost_lines_.value();
  if (more > 0) lost_lines_.Increment(more);
}

void ServerState::SetCanary(bool present, absl::Status status) {
  CHECK(canary_present_.has_value());
  canary_present_->Set(present ? 1 : 0);
  canary_ = std::move(status);
  if (!canary_.ok()) {
    base::Log(base::LogLevel::kError, ReadyLine());
  } else if (!present) {
    base::Log(
        base::LogLevel::kWarning,
        "the model has no tessera_canary.safetensors, so nobody knows whether it does what it "
        "must: tessera canary MODEL makes one");
  }
}

void ServerState::SetLoaded() {
  if (load_duration_) load_duration_->Set(absl::ToDoubleSeconds(clock_.Now() - start_));
  loaded_.store(true, std::memory_order_release);
}

std::string ServerState::ReadyLine() const {
  return canary_.ok() ? "ready" : absl::StrCat("never ready: canary: ", canary_.message());
}

void ServerState::SetDraining() {
  drains_.store(true);
  draining_.Set(1);
}

absl::Status ServerState::Health() const {
  for (const Check& check : Readiness()) {
    if (const absl::Status status = check.ask(); !status.ok()) {
      return absl::UnavailableError(absl::StrCat(check.name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

std::vector<Check> ServerState::Readiness() const {
  return {
      {"model",
       [this] { return loaded() ? absl::OkStatus() : absl::UnavailableError("is being loaded"); }},
      {"canary", [this] { return loaded() ? canary_ : absl::OkStatus(); }},
      {"serving",
       [this] { return drains_.load() ? absl::UnavailableError("draining") : absl::OkStatus(); }}};
}

}  // namespace tessera::ops
