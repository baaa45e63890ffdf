// The operations port of the one process.
#include "absl/strings/str_cat.h"
#include "tools/local_server.h"

namespace tessera::tools {
namespace {

base::Json PipelineState(const vision::PipelineStats& stats) {
  return {{"pending_images", stats.pending_images},
          {"encoder_has_work", stats.encoder_has_work},
          {"batches", stats.batches}};
}

}  // namespace

service::Pages LocalServer::MakePages() {
  return {.name = "server",
          .update = [this] { UpdateMetrics(); },
          .state = [this] { return State(); },
          .workers = {{"engine",
                       [this] {
                         const decode::EngineProgress progress = decode_->progress();
                         return service::Progress{progress.has_work, progress.steps};
                       },
                       [this] { return decode_->health(); }},
                      {"encoder",
                       [this] {
                         const vision::PipelineStats stats = vision_->stats();
                         return service::Progress{stats.encoder_has_work, stats.batches};
                       },
                       [this] { return vision_->health(); }},
                      {"finishing",
                       [this] {
                         const vision::PipelineStats stats = vision_->stats();
                         return service::Progress{stats.finishing_has_work, stats.finished_batches};
                       },
                       nullptr}},
          .readiness = {{"device", [this] {
                           const absl::Status seen = vision_->health();
                           return seen.ok() ? decode_->health() : seen;
                         }}}};
}

base::Json LocalServer::State() const {
  return {{"gateway", gateway_->State()},
          {"vision", PipelineState(vision_->stats())},
          {"decode", decode_->State()},
          {"store", {{"bytes", stores_->local().bytes()}}}};
}

void LocalServer::UpdateMetrics() {
  gateway_->UpdateMetrics();
  vision_->UpdateMetrics();
  decode_->UpdateMetrics();
}

std::string LocalServer::MetricsText() {
  return process_->MetricsText([this] { UpdateMetrics(); });
}

// One process, one verdict: that of vision where both have something to say.
void LocalServer::TellCanary() {
  const weights::CanaryResult& seen = vision_->canary();
  const weights::CanaryResult& read = decode_->canary();
  process_->state().SetCanary(seen.present, seen.status.ok() ? read.status : seen.status);
}

}  // namespace tessera::tools
