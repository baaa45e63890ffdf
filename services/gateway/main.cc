#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/flags/command.h"
#include "common/flags/trace_flags.h"
#include "common/metrics/metrics.h"
#include "common/ops/ops_server.h"
#include "common/ops/server_state.h"
#include "common/ops/stop_signal.h"
#include "common/rpc/access.h"
#include "common/rpc/api_keys.h"
#include "common/rpc/channel.h"
#include "common/rpc/resolve.h"
#include "common/rpc/server.h"
#include "common/rpc/span_exporter.h"
#include "services/gateway/access_flags.h"
#include "services/gateway/gateway_flags.h"
#include "services/gateway/gateway_runtime.h"
#include "services/gateway/http/http_done.h"
#include "services/gateway/http/http_flags.h"
#include "services/gateway/http/http_server.h"

namespace tessera::gateway {
namespace {

constexpr char kName[] = "tessera-gateway";
constexpr char kVersion[] = "0.1.0";

struct ProcessOptions {
  std::string grpc_address = "127.0.0.1:9000";
  http::HttpOptions http;
  std::string ops_address = "127.0.0.1:9464";
  std::string vision_addresses = "127.0.0.1:9100";
  std::string decode_addresses = "127.0.0.1:9200";
  std::string handle_key_file;
  std::string reflection = "auto";
  rpc::AccessOptions access;
  bool peer_tls = false;
  rpc::TlsFiles peer_files = {.ca_flag = "peer_tls_ca_file",
                              .cert_flag = "peer_tls_cert_file",
                              .key_flag = "peer_tls_key_file"};
  absl::Duration drain_timeout = absl::Seconds(90);
  rpc::TraceOptions traces;
  ReplicaSetOptions replicas;  // the times
  GatewayOptions gateway;
};

void AddFlags(flags::Command& command, ProcessOptions& options) {
  using flags::Value;
  using flags::ValueOrEmpty;
  options.gateway.model_name = "tessera";
  command.Add(
      {{"grpc_address", Value(options.grpc_address), "host:port; port 0 takes a free one"},
       {"ops_address", Value(options.ops_address), "metrics, healthz, readyz"},
       {"vision_addresses", Value(options.vision_addresses),
        "host:port,...; every address of a name is a replica"},
       {"decode_addresses", Value(options.decode_addresses), "likewise"},
       {"load_interval", Value(options.replicas.load_interval), "between two words of a replica"},
       {"load_silence", Value(options.replicas.load_silence),
        "a replica that says nothing for so long is left out, its calls are cancelled"},
       {"resolve_interval", Value(options.replicas.resolve_interval), "between two looks at names"},
       {"model_name", Value(options.gateway.model_name), "that clients use"},
       {"image_handle_key_file", ValueOrEmpty(options.handle_key_file),
        "key of image handles, the same for every gateway [a fresh one]"},
       {"reflection",
        flags::OneOf<std::string>(options.reflection,
                                  {{"auto", "auto"}, {"true", "true"}, {"false", "false"}}),
        "of gRPC; auto: on where no keys are asked for"},
       {"peer_tls", flags::OnOff(options.peer_tls), "on: the other services are asked over TLS"},
       {"peer_tls_ca_file", flags::ValueOrEmpty(options.peer_files.ca),
        "PEM, whom to believe [the system's authorities]"},
       {"peer_tls_cert_file", flags::ValueOrEmpty(options.peer_files.cert), "PEM, shown to them"},
       {"peer_tls_key_file", flags::ValueOrEmpty(options.peer_files.key), "its key, PEM"},
       {"peer_tls_server_name", flags::ValueOrEmpty(options.peer_files.server_name),
        "in their certificates [the address]"},
       {"drain_timeout", Value(options.drain_timeout), "for running requests at the end"}});
  command.Add(http::HttpFlags(options.http));
  command.Add(AccessFlags(options.access));
  command.Add(
      flags::TraceFlags(options.traces.endpoint, options.traces.tls, options.traces.ca_file));
  command.Add(GatewayFlags(options.gateway));
}

absl::StatusOr<std::string> HandleKey(const std::string& file) {
  if (file.empty()) return base::RandomBytes(32);
  absl::StatusOr<std::string> key = base::ReadFile(file, 4096);
  if (!key.ok()) return base::Annotate(key.status(), "--image_handle_key_file");
  return key;
}

base::Json ReplicasJson(const std::vector<ReplicaState>& states) {
  base::Json json = base::Json::object();
  for (const ReplicaState& state : states) {
    json[state.view.name] = {{"up", state.view.up},
                             {"draining", state.view.draining},
                             {"full", state.view.full},
                             {"pressure", state.view.pressure}};
  }
  return json;
}

base::Json AdmissionJson(const Admission::Stats& stats) {
  return {{"queued_requests", stats.queued},
          {"tokens_admitted", stats.tokens_admitted},
          {"tokens_free", stats.tokens_free}};
}

bool AnyUp(const std::vector<ReplicaState>& states) {
  for (const ReplicaState& state : states) {
    if (state.view.up && !state.view.draining) return true;
  }
  return false;
}

// In the order of birth; what is below uses what is above.
struct Process {
  explicit Process(const ProcessOptions& options)
      : metrics(options.gateway.model_name), state(metrics, base::RealClock(), kVersion) {}

  metrics::Metrics metrics;
  ops::ServerState state;
  std::unique_ptr<rpc::SpanExporter> spans;
  std::unique_ptr<rpc::ApiKeys> keys;
  std::unique_ptr<GatewayRuntime> runtime;  // read by the operations port once state is loaded
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<http::HttpServer> http;
  std::unique_ptr<ops::OpsServer> ops;

  absl::Status Listen(const std::string& address);
  absl::Status FindPeers(const ProcessOptions& options, ops::StopSignal& stop, bool& stopped);
  absl::Status Serve(const ProcessOptions& options);
  void Drain(absl::Duration timeout);
};

absl::Status Process::Listen(const std::string& address) {
  ops::Handlers handlers;
  handlers.metrics = [this] {
    state.Update();
    if (state.loaded()) runtime->UpdateMetrics();
    return metrics.Text();
  };
  handlers.readiness = state.Readiness();
  // Without vision what is known is still answered: only decode counts.
  handlers.readiness.push_back({"decode", [this] {
                                  if (!state.loaded() || AnyUp(runtime->decode_replicas())) {
                                    return absl::OkStatus();
                                  }
                                  return absl::UnavailableError("no replica is up");
                                }});
  handlers.state = {{"gateway", [this]() -> base::Json {
                       if (!state.loaded()) return {{"loaded", false}};
                       return {{"loaded", true},
                               {"inflight_requests", runtime->inflight()},
                               {"admission", AdmissionJson(runtime->admission())},
                               {"vision", ReplicasJson(runtime->vision_replicas())},
                               {"decode", ReplicasJson(runtime->decode_replicas())}};
                     }}};
  ASSIGN_OR_RETURN(ops, ops::OpsServer::Start({.address = address}, std::move(handlers)));
  return absl::OkStatus();
}

// Until both services have told what they serve, however long that takes.
absl::Status Process::FindPeers(const ProcessOptions& options, ops::StopSignal& stop,
                                bool& stopped) {
  ReplicaSetOptions vision = options.replicas, decode = options.replicas;
  vision.addresses = absl::StrSplit(options.vision_addresses, ',', absl::SkipEmpty());
  decode.addresses = absl::StrSplit(options.decode_addresses, ',', absl::SkipEmpty());
  rpc::ChannelOptions channel;
  if (options.peer_tls) {
    ASSIGN_OR_RETURN(channel.tls, rpc::ChannelTls::Create(options.peer_files));
  }
  while (!stopped) {
    absl::StatusOr<std::unique_ptr<GatewayRuntime>> made = GatewayRuntime::Create(
        options.gateway,
        GatewayPeers::Remote(
            vision, decode,
            [channel](const std::string& name) { return rpc::Connect(name, channel); }),
        base::RealClock(), metrics);
    if (made.ok()) {
      runtime = *std::move(made);
      return absl::OkStatus();
    }
    if (!absl::IsUnavailable(made.status()) && !absl::IsDeadlineExceeded(made.status())) {
      return made.status();
    }
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("gateway: waiting: ", made.status().ToString()));
    stopped = stop.Wait(absl::Milliseconds(100));
  }
  return absl::OkStatus();
}

absl::Status Process::Serve(const ProcessOptions& options) {
  const rpc::ServerOptions server_options = {
      .address = options.grpc_address,
      .max_receive_bytes = static_cast<int>(options.gateway.max_message_bytes),
      .reflection = options.reflection == "auto" ? !keys->on() : options.reflection == "true",
      .metrics = &metrics,
      .tls = options.access.tls};
  ASSIGN_OR_RETURN(server, rpc::Server::Start(server_options, {runtime->service()},
                                              {"tessera.v1.GatewayService"}));
  if (!options.http.address.empty()) {
    ASSIGN_OR_RETURN(
        http,
        http::HttpServer::Start(
            options.http, {.answer = runtime->answer_parts(),
                           .model = runtime->model_info(),
                           .version = kVersion,
                           .tenant = [this](absl::string_view key) { return keys->TenantOf(key); },
                           .health = [this] { return state.Health(); },
                           .done = http::TellRefusals(spans.get())}));
  }
  state.SetLoaded();
  return absl::OkStatus();
}

void Process::Drain(absl::Duration timeout) {
  const absl::Time deadline = base::RealClock().Now() + timeout;
  state.SetDraining();
  if (server == nullptr) return;
  server->SetReady(false);
  runtime->Drain(timeout);
  if (http) http->Shutdown(std::max(absl::ZeroDuration(), deadline - base::RealClock().Now()));
  server->Shutdown(absl::Seconds(1));
}

void PrintReport(const ProcessOptions& options, const Process& process,
                 const flags::Command& command) {
  const auto with_port = [](const std::string& address, int port) {
    return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
  };
  std::cout << kName << "\n  changed flags   " << absl::StrJoin(command.Changed(), " ")
            << "\n  gRPC            " << with_port(options.grpc_address, process.server->port());
  if (process.http) {
    std::cout << "\n  HTTP            " << with_port(options.http.address, process.http->port());
  }
  std::cout << "\n  operations      " << with_port(options.ops_address, process.ops->port())
            << "\nready" << std::endl;
}

absl::Status Run(ProcessOptions options, const flags::Command& command) {
  ops::StopSignal stop;  // before any thread
  ASSIGN_OR_RETURN(options.gateway.handle_key, HandleKey(options.handle_key_file));
  RETURN_IF_ERROR(options.gateway.Validate());
  RETURN_IF_ERROR(rpc::CheckExposure(options.access, "grpc_address", options.grpc_address));
  RETURN_IF_ERROR(rpc::CheckExposure(options.access, "http_address", options.http.address));
  http::ApplyAccess(options.access, options.http);
  RETURN_IF_ERROR(options.http.Validate());
  RETURN_IF_ERROR(rpc::CheckFree("grpc_address", options.grpc_address));
  RETURN_IF_ERROR(rpc::CheckFree("http_address", options.http.address));
  Process process(options);
  ASSIGN_OR_RETURN(process.keys,
                   rpc::ApiKeys::Create(options.access.api_keys_file, base::RealClock()));
  options.gateway.api_keys = process.keys.get();
  ASSIGN_OR_RETURN(process.spans,
                   rpc::SpanExporter::Create(options.traces, {kVersion, options.gateway.model_name},
                                             process.metrics));
  options.gateway.spans = process.spans.get();
  RETURN_IF_ERROR(process.Listen(options.ops_address));
  bool stopped = false;
  RETURN_IF_ERROR(process.FindPeers(options, stop, stopped));
  if (stopped) return absl::OkStatus();
  RETURN_IF_ERROR(process.Serve(options));
  PrintReport(options, process, command);
  while (!stop.Wait(absl::Hours(1))) {
  }
  std::cout << "draining" << std::endl;
  process.Drain(options.drain_timeout);
  std::cout << "stopped" << std::endl;
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  ProcessOptions options;
  flags::Command command(kName, "What clients of Tessera talk to, over gRPC and HTTP.");
  AddFlags(command, options);
  if (const std::optional<int> code = command.Parse(argc, argv, environ)) return *code;
  return flags::ExitCode(kName, Run(options, command));
}

}  // namespace
}  // namespace tessera::gateway

int main(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // what it logs comes back as a status
  std::signal(SIGPIPE, SIG_IGN);
  return tessera::gateway::Main(argc, argv);
}
