#include "common/service/process.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/metrics/names.h"
#include "common/ops/watchdog.h"
#include "common/rpc/collector.h"

namespace tessera::service {
namespace {

constexpr absl::Duration kStuckAfter = absl::Seconds(30);

// Asks `check` once the process is loaded.
ops::Check OnceLoaded(const ops::ServerState& state, ops::Check check) {
  return {check.name, [&state, ask = std::move(check.ask)] {
            return state.loaded() ? ask() : absl::OkStatus();
          }};
}

}  // namespace

Process::Process(const ProcessOptions& options, base::Clock& clock)
    : options_(options),
      clock_(clock),
      metrics_(options.model_name),
      state_(metrics_, clock, base::kVersion, options.has_model) {}

absl::StatusOr<std::unique_ptr<Process>> Process::Create(const ProcessOptions& options,
                                                         base::Clock& clock) {
  auto process = std::unique_ptr<Process>(new Process(options, clock));
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> collector, rpc::ConnectCollector(options.traces));
  process->spans_ = rpc::SpanExporter::Create(options.traces, {base::kVersion, options.model_name},
                                              std::move(collector), process->metrics_);
  return process;
}

void Process::TellModel(const std::string& model_dir, absl::string_view digest) {
  constexpr size_t kShort = 16;
  metrics_
      .GetGauge(metrics::kModelInfo, {"none", ModelRevision(model_dir), digest.substr(0, kShort)})
      .Set(1);
}

std::string Process::MetricsText(const std::function<void()>& update) {
  base::MutexLock lock(metrics_mutex_);
  state_.Update();
  if (state_.loaded()) update();
  return metrics_.Text();
}

absl::Status Process::Health() const {
  RETURN_IF_ERROR(state_.Health());
  for (const ops::Check& check : readiness_) {
    if (const absl::Status status = check.ask(); !status.ok()) {
      return absl::UnavailableError(absl::StrCat(check.name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ops::OpsServer>> Process::Listen(Pages pages) {
  return ops::OpsServer::Start({.address = options_.ops_address}, MakeHandlers(std::move(pages)));
}

ops::Handlers Process::MakeHandlers(Pages pages) {
  ops::Handlers handlers;
  handlers.metrics = [this, update = std::move(pages.update)] { return MetricsText(update); };
  for (Worker& worker : pages.workers) {
    auto watchdog = std::make_shared<ops::Watchdog>(clock_, kStuckAfter);
    const auto look = [watchdog, progress = std::move(worker.progress)] {
      const Progress now = progress();
      return watchdog->Look(now.has_work, now.steps);
    };
    handlers.liveness.push_back(OnceLoaded(state_, {worker.name, look}));
    if (!worker.health) continue;
    auto patience = std::make_shared<ops::Watchdog>(clock_, kStuckAfter);
    const auto ask = [patience, health = std::move(worker.health)] {
      const absl::Status now = health();
      const bool fails = !patience->Look(!now.ok(), 0).ok();
      return fails ? now : absl::OkStatus();
    };
    handlers.liveness.push_back(OnceLoaded(state_, {worker.name + "'s health", ask}));
  }
  handlers.readiness = state_.Readiness();
  for (ops::Check& check : pages.readiness) {
    readiness_.push_back(OnceLoaded(state_, std::move(check)));
    handlers.readiness.push_back(readiness_.back());
  }
  handlers.state = {{pages.name, [this, tell = std::move(pages.state)]() -> base::Json {
                       base::Json json = state_.loaded() ? tell() : base::Json::object();
                       json["loaded"] = state_.loaded();
                       return json;
                     }}};
  return handlers;
}

std::string ModelRevision(const std::string& model_dir) {
  std::filesystem::path path(model_dir);
  if (!path.has_filename()) path = path.parent_path();  // "dir/"
  const bool snapshot = path.parent_path().filename() == "snapshots";
  return snapshot ? path.filename().string() : "unknown";
}

std::string WithPort(absl::string_view address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

int RunMain(int argc, char** argv, flags::Command& command, const std::string& name,
            const std::function<absl::Status()>& run) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // what it logs comes back as a status
  std::signal(SIGPIPE, SIG_IGN);
  if (const std::optional<int> code = command.Parse(argc, argv, environ)) return *code;
  return flags::ExitCode(name, run());
}

}  // namespace tessera::service
