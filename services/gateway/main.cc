#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/flags/command.h"
#include "common/ops/stop_signal.h"
#include "common/rpc/channel.h"
#include "common/service/flags.h"
#include "common/service/process.h"
#include "services/gateway/front.h"
#include "services/gateway/gateway_flags.h"
#include "services/gateway/gateway_runtime.h"
#include "services/gateway/http/http_flags.h"
#include "services/gateway/pictures/image_handle.h"

namespace tessera::gateway {
namespace {

constexpr char kName[] = "tessera-gateway";

struct Options {
  service::ProcessOptions process = {
      .grpc_address = "127.0.0.1:9000", .ops_address = "127.0.0.1:9464", .has_model = false};
  FrontOptions front;
  service::PeerOptions peers;
  std::string vision_addresses = "127.0.0.1:9100";
  std::string decode_addresses = "127.0.0.1:9200";
  std::string handle_key_file;
  ReplicaSetOptions replicas;  // the times
  GatewayOptions gateway;
};

void AddFlags(flags::Command& command, Options& options) {
  using flags::Value;
  command.Add(
      {{"vision_addresses", Value(options.vision_addresses),
        "host:port,...; every address of a name is a replica"},
       {"decode_addresses", Value(options.decode_addresses),
        "host:port,...; every address of a name is a replica"},
       {"load_interval", Value(options.replicas.load_interval), "between two words of a replica"},
       {"load_silence", Value(options.replicas.load_silence),
        "a replica that says nothing for so long is left out, its calls are cancelled"},
       {"resolve_interval", Value(options.replicas.resolve_interval), "between two looks at names"},
       {"slow_client_timeout", Value(options.gateway.slow_client_timeout),
        "an answer that its client leaves unread for so long is ended"},
       {"image_handle_key_file", flags::ValueOrEmpty(options.handle_key_file),
        "key of image handles, the same for every gateway [a fresh one]"},
       {"reflection",
        flags::OneOf<std::optional<bool>>(
            options.front.reflection, {{"auto", std::nullopt}, {"true", true}, {"false", false}}),
        "of gRPC; auto: on where no keys are asked for"}});
  command.Add(service::ProcessFlags(options.process));
  command.Add(service::PeerFlags(options.peers));
  command.Add(http::HttpFlags(options.front.http));
  command.Add(AccessFlags(options.front.access));
  command.Add(GatewayFlags(options.gateway));
}

// `runtime` is there once the process is loaded.
service::Pages MakePages(const std::unique_ptr<GatewayRuntime>& runtime) {
  service::Pages pages;
  pages.name = "gateway";
  pages.update = [&runtime] { runtime->UpdateMetrics(); };
  pages.state = [&runtime] { return runtime->State(); };
  pages.readiness = {{"decode", [&runtime] {
                        if (runtime->DecodeIsUp()) return absl::OkStatus();
                        return absl::UnavailableError("no replica is up");
                      }}};
  return pages;
}

// The addresses of one flag; INVALID_ARGUMENT, BAD_OPTION where one is none.
absl::StatusOr<std::vector<std::string>> Addresses(const char* flag, const std::string& text) {
  std::vector<std::string> addresses = absl::StrSplit(text, ',', absl::SkipEmpty());
  if (addresses.empty()) {
    return base::BadField(flag, "BAD_OPTION",
                          absl::StrCat("--", flag, " is empty: give host:port"));
  }
  for (const std::string& address : addresses) {
    const absl::Status status = rpc::CheckAddress(address);
    if (!status.ok()) return base::Annotate(status, absl::StrCat("--", flag));
  }
  return addresses;
}

// Waits until decode has told what it serves, however long that takes. Null: SIGTERM came first.
absl::StatusOr<std::unique_ptr<GatewayRuntime>> MeetPeers(const Options& options,
                                                          service::Process& process,
                                                          ops::StopSignal& stop) {
  ReplicaSetOptions vision = options.replicas, decode = options.replicas;
  ASSIGN_OR_RETURN(vision.addresses, Addresses("vision_addresses", options.vision_addresses));
  ASSIGN_OR_RETURN(decode.addresses, Addresses("decode_addresses", options.decode_addresses));
  ASSIGN_OR_RETURN(const rpc::ChannelOptions channel, options.peers.Channel());
  const auto connect = [channel](const std::string& name) { return rpc::Connect(name, channel); };
  GatewayPeers peers = GatewayPeers::Remote(vision, decode, connect);
  bool stopped = false;
  peers.given_up = [&stop, &stopped] {
    return stopped = stopped || stop.Wait(absl::ZeroDuration());
  };
  for (;;) {
    absl::StatusOr<std::unique_ptr<GatewayRuntime>> runtime =
        GatewayRuntime::Create(options.gateway, peers, base::RealClock(), process.metrics());
    if (stopped) return nullptr;
    const absl::Status& status = runtime.status();
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return runtime;
    base::Log(base::LogLevel::kWarning, absl::StrCat("gateway: waiting: ", status.ToString()));
    if (stop.Wait(absl::Milliseconds(100))) return nullptr;
  }
}

void PrintReport(const Options& options, const Front& front, const ops::OpsServer& ops,
                 const std::vector<std::string>& changed) {
  std::cout << kName << "\n  changed flags   " << absl::StrJoin(changed, " ")
            << "\n  gRPC            "
            << service::WithPort(options.process.grpc_address, front.grpc_port());
  if (front.http_port() != 0) {
    std::cout << "\n  HTTP            "
              << service::WithPort(options.front.http.address, front.http_port());
  }
  std::cout << "\n  operations      " << service::WithPort(options.process.ops_address, ops.port())
            << "\nready" << std::endl;
}

absl::Status Run(Options options, const std::vector<std::string>& changed) {
  ops::StopSignal stop;  // before any thread
  GatewayOptions& gateway = options.gateway;
  options.front.grpc_address = options.process.grpc_address;
  options.front.max_message_bytes = static_cast<int>(gateway.max_message_bytes);
  gateway.model_name = options.process.model_name;
  ASSIGN_OR_RETURN(gateway.handle_key, HandleKey(options.handle_key_file));
  RETURN_IF_ERROR(gateway.Validate());
  RETURN_IF_ERROR(options.front.Check());
  // What is below uses what is above.
  ASSIGN_OR_RETURN(const std::unique_ptr<service::Process> process,
                   service::Process::Create(options.process));
  gateway.spans = process->spans();
  ASSIGN_OR_RETURN(const std::unique_ptr<rpc::ApiKeys> keys,
                   rpc::ApiKeys::Create(options.front.access.api_keys_file, base::RealClock()));
  gateway.api_keys = keys->on() ? keys.get() : nullptr;
  std::unique_ptr<GatewayRuntime> runtime;
  std::unique_ptr<Front> front;
  ASSIGN_OR_RETURN(const std::unique_ptr<ops::OpsServer> ops, process->Listen(MakePages(runtime)));
  ASSIGN_OR_RETURN(runtime, MeetPeers(options, *process, stop));
  if (runtime == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(front, Front::Start(options.front, {*runtime, *keys, *process}));
  process->state().SetLoaded();
  front->FollowHealth();
  PrintReport(options, *front, *ops, changed);
  while (!stop.Wait(absl::Seconds(1))) front->FollowHealth();
  std::cout << "draining" << std::endl;
  ops::EndWithin(options.process.drain_delay + options.process.drain_timeout + ops::kLongestEnd);
  front->Drain(options.process.drain_timeout, options.process.drain_delay);
  std::cout << "stopped" << std::endl;
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  flags::Command command(kName, "What clients of Tessera talk to, over gRPC and HTTP.");
  AddFlags(command, options);
  return service::RunMain(argc, argv, command, kName,
                          [&] { return Run(options, command.Changed()); });
}

}  // namespace
}  // namespace tessera::gateway

int main(int argc, char** argv) { return tessera::gateway::Main(argc, argv); }
