// The operations port of the one process.
#include "absl/strings/str_cat.h"
#include "common/metrics/names.h"
#include "tools/local_server.h"

namespace tessera::tools {
namespace {

// An engine or encoder that has work and finishes no step for so long is stuck.
constexpr absl::Duration kStuckAfter = absl::Seconds(30);

base::Json EngineState(const decode::EngineStats& stats) {
  return {{"running", stats.running},
          {"waiting", stats.waiting},
          {"outside", stats.outside},
          {"blocks_used", stats.blocks_used},
          {"blocks_cached", stats.blocks_cached},
          {"blocks_total", stats.blocks_total},
          {"steps", stats.steps},
          {"preemptions", stats.preemptions},
          {"prefix_queries", stats.prefix_queries},
          {"prefix_hits", stats.prefix_hits}};
}

base::Json PipelineState(const vision::PipelineStats& stats) {
  return {{"pending_images", stats.pending_images},
          {"encoder_has_work", stats.encoder_has_work},
          {"batches", stats.batches}};
}

}  // namespace

absl::Status LocalServer::ListenForOperations(const std::string& address) {
  base::Clock& clock = base::RealClock();
  engine_watchdog_ = std::make_unique<ops::Watchdog>(clock, kStuckAfter);
  encoder_watchdog_ = std::make_unique<ops::Watchdog>(clock, kStuckAfter);
  ops::Handlers handlers;
  handlers.metrics = [this] { return MetricsText(); };
  handlers.liveness = {{"engine", [this] { return EngineAlive(); }},
                       {"encoder", [this] { return EncoderAlive(); }}};
  handlers.readiness = state_->Readiness();
  handlers.readiness.push_back(
      {"device", [this] { return state_->loaded() ? decode_->health() : absl::OkStatus(); }});
  handlers.state = {{"server", [this] { return ServerJson(); }}};
  ops::OpsOptions options;
  options.address = address;
  auto server = ops::OpsServer::Start(std::move(options), std::move(handlers));
  if (!server.ok()) return server.status();
  ops_server_ = *std::move(server);
  return absl::OkStatus();
}

absl::Status LocalServer::EngineAlive() {
  if (!state_->loaded()) return absl::OkStatus();
  const decode::EngineProgress progress = decode_->progress();
  return engine_watchdog_->Look(progress.has_work, progress.steps);
}

absl::Status LocalServer::EncoderAlive() {
  if (!state_->loaded()) return absl::OkStatus();
  const vision::PipelineStats stats = vision_->stats();
  return encoder_watchdog_->Look(stats.encoder_has_work, stats.batches);
}

base::Json LocalServer::ServerJson() {
  base::Json json = {{"loaded", state_->loaded()}};
  if (!state_->loaded()) return json;
  json["gateway"] = {{"inflight_requests", gateway_->inflight()}};
  json["vision"] = PipelineState(vision_->stats());
  json["decode"] = EngineState(decode_->stats());
  json["store"] = {{"bytes", stores_->local().bytes()}};
  return json;
}

std::string LocalServer::MetricsText() {
  base::MutexLock lock(metrics_mutex_);
  state_->Update();
  if (state_->loaded()) {
    gateway_->UpdateMetrics();
    vision_->UpdateMetrics();
    decode_->UpdateMetrics();
  }
  return metrics_->Text();
}

// One process, one verdict: that of vision where both have something to say.
void LocalServer::TellCanary() {
  const weights::CanaryResult& seen = vision_->canary();
  const weights::CanaryResult& read = decode_->canary();
  state_->SetCanary(seen.present, seen.status.ok() ? read.status : seen.status);
  gateway_server_->SetReady(state_->canary().ok());
}

void LocalServer::TellModel() {
  const std::string& fingerprint = vision_->info().fingerprint;
  constexpr size_t kShort = 16;
  metrics_->GetGauge(metrics::kModelInfo, {"none", "unknown", fingerprint.substr(0, kShort)})
      .Set(1);
}

}  // namespace tessera::tools
