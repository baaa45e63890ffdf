#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/compute_pool.h"
#include "common/base/status_macros.h"
#include "common/flags/command.h"
#include "common/flags/store_flags.h"
#include "common/flags/trace_flags.h"
#include "common/metrics/metrics.h"
#include "common/ops/ops_server.h"
#include "common/ops/server_state.h"
#include "common/ops/stop_signal.h"
#include "common/ops/watchdog.h"
#include "common/rpc/access.h"
#include "common/rpc/resolve.h"
#include "common/rpc/server.h"
#include "common/rpc/span_exporter.h"
#include "common/store/store_set.h"
#include "services/vision/vision_flags.h"
#include "services/vision/vision_runtime.h"

namespace tessera::vision {
namespace {

constexpr char kName[] = "tessera-vision";
constexpr char kVersion[] = "0.1.0";
constexpr int kMessageBytes = 64 << 20;  // pictures come in chunks of the gateway's size
constexpr absl::Duration kStuckAfter = absl::Seconds(30);

struct ProcessOptions {
  std::string grpc_address = "127.0.0.1:9100";
  std::string ops_address = "127.0.0.1:9465";
  std::string model_name = "tessera";
  int threads = 0;
  bool reflection = false;
  rpc::InnerAccessOptions access;
  absl::Duration drain_timeout = absl::Seconds(90);
  rpc::TraceOptions traces;
  store::StoreSetOptions store;
  VisionOptions vision;
};

void AddFlags(flags::Command& command, ProcessOptions& options) {
  using flags::Value;
  command.AddRequired({"model", Value(options.vision.model_dir), "model directory"});
  command.Add(
      {{"grpc_address", Value(options.grpc_address), "host:port; port 0 takes a free one"},
       {"ops_address", Value(options.ops_address), "metrics, healthz, readyz"},
       {"model_name", Value(options.model_name), "label of the metrics"},
       {"device", Value(options.vision.device), "cpu or reference"},
       {"threads", Value(options.threads), "of the compute pool [what is granted]"},
       {"reflection", Value(options.reflection), "gRPC reflection"},
       {"origin", flags::ValueOrEmpty(options.vision.origin),
        "host:port by which decode reads records of this process [grpc_address]"},
       {"tls_cert_file", flags::ValueOrEmpty(options.access.tls.cert), "PEM, of this server"},
       {"tls_key_file", flags::ValueOrEmpty(options.access.tls.key), "its key, PEM"},
       {"tls_client_ca_file", flags::ValueOrEmpty(options.access.tls.ca),
        "PEM; callers must show a certificate of it"},
       {"trusted_network", flags::OnOff(options.access.trusted_network),
        "on: everybody who can connect may speak for any tenant"},
       {"drain_timeout", Value(options.drain_timeout), "for running work at the end"}});
  command.Add(
      flags::TraceFlags(options.traces.endpoint, options.traces.tls, options.traces.ca_file));
  command.Add(flags::StoreFlags(options.store));
  command.Add(VisionFlags(options.vision));
}

// In the order of birth; what is below uses what is above.
struct Process {
  explicit Process(const ProcessOptions& options)
      : metrics(options.model_name), state(metrics, base::RealClock(), kVersion) {}

  metrics::Metrics metrics;
  ops::ServerState state;
  std::unique_ptr<rpc::SpanExporter> spans;
  ops::Watchdog watchdog{base::RealClock(), kStuckAfter};
  std::unique_ptr<base::ComputePool> pool;
  std::unique_ptr<store::StoreSet> stores;
  std::unique_ptr<VisionRuntime> runtime;  // read by the operations port once state is loaded
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<ops::OpsServer> ops;

  absl::Status Listen(const std::string& address);
  absl::Status Load(const ProcessOptions& options);
};

absl::Status Process::Listen(const std::string& address) {
  ops::Handlers handlers;
  handlers.metrics = [this] {
    state.Update();
    if (state.loaded()) runtime->UpdateMetrics();
    return metrics.Text();
  };
  handlers.liveness = {{"encoder", [this] {
                          if (!state.loaded()) return absl::OkStatus();
                          const PipelineStats stats = runtime->stats();
                          return watchdog.Look(stats.encoder_has_work, stats.batches);
                        }}};
  handlers.readiness = state.Readiness();
  handlers.state = {{"vision", [this]() -> base::Json {
                       if (!state.loaded()) return {{"loaded", false}};
                       const PipelineStats stats = runtime->stats();
                       return {{"loaded", true},
                               {"pending_images", stats.pending_images},
                               {"batches", stats.batches},
                               {"store_bytes", stores->local().bytes()}};
                     }}};
  ASSIGN_OR_RETURN(ops, ops::OpsServer::Start({.address = address}, std::move(handlers)));
  return absl::OkStatus();
}

absl::Status Process::Load(const ProcessOptions& options) {
  pool = std::make_unique<base::ComputePool>(
      options.threads > 0 ? options.threads : base::ComputePool::AvailableCpus());
  ASSIGN_OR_RETURN(stores, store::StoreSet::Create(options.store, metrics));
  ASSIGN_OR_RETURN(runtime, VisionRuntime::Create(options.vision, *pool, VisionStores(*stores),
                                                  base::RealClock(), metrics));
  const rpc::ServerOptions server_options = {.address = options.grpc_address,
                                             .max_receive_bytes = kMessageBytes,
                                             .reflection = options.reflection,
                                             .metrics = &metrics,
                                             .tls = options.access.tls};
  ASSIGN_OR_RETURN(server, rpc::Server::Start(server_options, {runtime->service()},
                                              {"tessera.v1.VisionService"}));
  state.SetCanary(runtime->canary().present, runtime->canary().status);
  server->SetReady(state.canary().ok());
  state.SetLoaded();
  return absl::OkStatus();
}

absl::Status Run(ProcessOptions options, const flags::Command& command) {
  ops::StopSignal stop;  // before any thread
  if (options.vision.origin.empty()) options.vision.origin = options.grpc_address;
  RETURN_IF_ERROR(rpc::CheckInnerExposure(options.access, options.grpc_address));
  RETURN_IF_ERROR(rpc::CheckFree("grpc_address", options.grpc_address));
  Process process(options);
  ASSIGN_OR_RETURN(
      process.spans,
      rpc::SpanExporter::Create(options.traces, {kVersion, options.model_name}, process.metrics));
  options.vision.spans = process.spans.get();
  RETURN_IF_ERROR(process.Listen(options.ops_address));
  RETURN_IF_ERROR(process.Load(options));
  const VisionInfo& info = process.runtime->info();
  std::cout << kName << "\n  changed flags   " << absl::StrJoin(command.Changed(), " ")
            << "\n  device          " << info.device << ", weights "
            << base::BytesText(info.memory.weights) << "\n  gRPC            "
            << absl::StrCat(options.grpc_address.substr(0, options.grpc_address.rfind(':')), ":",
                            process.server->port())
            << "\n  operations      port " << process.ops->port() << "\n"
            << process.state.ReadyLine() << std::endl;
  while (!stop.Wait(absl::Hours(1))) {
  }
  std::cout << "draining" << std::endl;
  process.state.SetDraining();
  process.server->SetReady(false);
  process.runtime->Drain(base::RealClock().Now() + options.drain_timeout);
  process.server->Shutdown(absl::Milliseconds(500));  // watchers stay until then
  std::cout << "stopped" << std::endl;
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  ProcessOptions options;
  flags::Command command(kName, "Pictures to rows: the vision service of Tessera.");
  AddFlags(command, options);
  if (const std::optional<int> code = command.Parse(argc, argv, environ)) return *code;
  return flags::ExitCode(kName, Run(options, command));
}

}  // namespace
}  // namespace tessera::vision

int main(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // what it logs comes back as a status
  std::signal(SIGPIPE, SIG_IGN);
  return tessera::vision::Main(argc, argv);
}
