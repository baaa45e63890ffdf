#include "tools/serve.h"

#include <optional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/flags/flags.h"
#include "common/flags/store_flags.h"
#include "common/ops/stop_signal.h"
#include "services/decode/decode_flags.h"
#include "services/decode/load_line.h"
#include "services/gateway/gateway_flags.h"
#include "services/vision/load_line.h"
#include "services/vision/vision_flags.h"

namespace tessera::tools {
namespace {

using flags::AddFlags;
using flags::Flag;
using flags::Value;
using flags::ValueOrEmpty;

constexpr absl::Duration kLookInterval = absl::Seconds(1);
constexpr int64_t kLooksPerReport = 10;
constexpr absl::Duration kReportInterval = absl::Seconds(10);  // all of these looks

std::vector<Flag> CommonFlags(ServeOptions& options) {
  LocalServerOptions& server = options.server;
  return {
      {"vision_device", ValueOrEmpty(options.vision_device), "of the vision service [--device]"},
      {"model_name", ValueOrEmpty(server.model_name), "that clients use [directory's]"},
      {"image_handle_key_file", ValueOrEmpty(server.image_handle_key_file),
       "key of image handles [a fresh one]"},
      {"device", Value(options.device), "cpu or reference"},
      {"threads", Value(server.threads), "of the compute pool [what the machine grants]"},
  };
}

// The address that was asked for, with the port that it became.
std::string WithPort(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

void PrintReport(const LocalServer& server, const ServeOptions& options,
                 const std::vector<std::string>& changed_flags, std::ostream& out) {
  const vision::VisionInfo& seen = server.vision().info();
  const decode::DecodeInfo& read = server.decode().info();
  const v1::GetModelInfoResponse& model = server.model_info();
  out << "tessera serve\n";
  out << "  changed flags   "
      << (changed_flags.empty() ? "none" : absl::StrJoin(changed_flags, " ")) << "\n";
  out << "  model           " << model.model() << " (" << model.family() << ", context "
      << model.context_tokens() << " tokens, " << model.rows_per_image() << " rows per picture)\n";
  out << "  vision          " << seen.device << ", weights " << base::BytesText(seen.memory.weights)
      << "\n";
  out << "  decode          " << read.device << ", weights " << base::BytesText(read.memory.weights)
      << ", KV " << base::BytesText(read.memory.kv_cache) << "\n";
  out << absl::StrFormat("  KV cache: %d tokens, %.2f requests of 4096\n", read.kv_cache_tokens,
                         read.kv_cache_requests);
  const std::string address = WithPort(options.server.grpc_address, server.port());
  const rpc::AccessOptions& access = options.server.access;
  const std::string tls = access.tls.empty() ? "" : access.tls.ca.empty() ? " TLS" : " mutual TLS";
  out << "  gRPC            " << address << tls << "\n";
  if (server.http_port() != 0) {
    out << "  HTTP            " << WithPort(options.server.http.address, server.http_port()) << tls
        << " (/v1/chat/completions /v1/models /health /version)\n";
  }
  if (server.ops_port() != 0) {
    out << "  operations      " << WithPort(options.server.ops_address, server.ops_port())
        << " (/metrics /healthz /readyz /debug/state)\n";
  }
  const std::string model_dir = options.server.model_dir;
  out << "  try             " << options.program << " ask --address " << address
      << (tls.empty() ? "" : " --tls_ca_file CA.pem")
      << (access.api_keys_file.empty() ? "" : " --api_key KEY") << " --image " << model_dir
      << "/demo/shelf1.jpg --receipt \"What is the price on row 2?\"\n";
  out << server.ReadyLine() << std::endl;
}

// What was done until the last line.
struct Counted {
  decode::EngineStats decode;
  vision::VisionAnswers vision;
};

// One line while there is something to say.
void LogLoad(const LocalServer& server, Counted& before) {
  const Counted now = {server.decode().stats(), server.vision().answers()};
  std::optional<std::string> line = decode::LoadLine(now.decode, before.decode, kReportInterval);
  if (line) {
    const std::optional<std::string> hit = vision::HitText(now.vision, before.vision);
    if (hit) absl::StrAppend(&*line, ", ", *hit);
    base::Log(base::LogLevel::kInfo, *line);
  }
  before = now;
}

}  // namespace

void AddServiceFlags(CLI::App& app, ServeOptions& options) {
  AddFlags(app, CommonFlags(options));
  AddFlags(app, flags::StoreFlags(options.server.store));
  AddFlags(app, vision::VisionFlags(options.server.vision));
  AddFlags(app, decode::DecodeFlags(options.server.decode));
  AddFlags(app, gateway::GatewayFlags(options.server.gateway));
}

void ApplyServiceFlags(ServeOptions& options) {
  LocalServerOptions& server = options.server;
  server.decode.device = options.device;
  server.vision.device = options.vision_device.empty() ? options.device : options.vision_device;
  server.gateway.slow_client_timeout = server.decode.slow_client_timeout;
  server.vision.image_limits.max_bytes = server.gateway.max_image_bytes;
}

absl::Status Serve(ServeOptions options, const std::vector<std::string>& changed_flags,
                   std::ostream& out) {
  ops::StopSignal stop;  // before any thread
  ApplyServiceFlags(options);
  std::unique_ptr<LocalServer> server;
  {
    const ops::StopSignal::EndsProcess ends(stop);
    ASSIGN_OR_RETURN(server, LocalServer::Start(options.server));
  }
  PrintReport(*server, options, changed_flags, out);

  Counted before;
  for (int64_t looks = 1; !stop.Wait(kLookInterval); ++looks) {
    server->FollowHealth();
    if (looks % kLooksPerReport == 0) LogLoad(*server, before);
  }
  out << "draining" << std::endl;
  ops::EndWithin(options.drain_delay + options.drain_timeout + ops::kLongestEnd);
  server->Drain(options.drain_timeout, options.drain_delay);
  out << "stopped" << std::endl;
  return absl::OkStatus();
}

}  // namespace tessera::tools
