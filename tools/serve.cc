#include "tools/serve.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "tools/flags.h"

namespace tessera::tools {
namespace {

constexpr int kReportSeconds = 10;
constexpr int kMaxSide = 1'000'000;
constexpr int64_t kMaxPixels = 1'000'000'000'000;

FlagValue RowType(DType& target) {
  return OneOf<DType>(target, {{"f16", DType::kF16}, {"int8", DType::kI8}, {"f32", DType::kF32}});
}

// A limit of the picture's quality; NaN would never refuse.
FlagValue Limit(double& target) { return Within(target, 0.0, 1e9); }

std::vector<Flag> VisionFlags(ServeOptions& options) {
  vision::VisionOptions& vision = options.server.vision;
  vision::QualityLimits& refuse = vision.quality_thresholds.refuse;
  vision::QualityLimits& warn = vision.quality_thresholds.warn;
  vision::ImageLimits& limits = vision.image_limits;
  return {
      {"vision_device", ValueOrEmpty(options.vision_device), "of the vision service [--device]"},
      {"embedding_dtype", RowType(vision.embedding_dtype),
       "dtype of stored rows: f16, int8 (f16 where a row would lose over 1 %) or f32"},
      {"quality_gate", OnOff(vision.quality_gate), "on: bad pictures are warned of or refused"},
      {"quality_refuse_sharpness", Limit(refuse.blur_sharpness), "refuse below (blur)"},
      {"quality_refuse_exposure", Limit(refuse.darker_than), "refuse below (dark)"},
      {"quality_refuse_brightness", Limit(refuse.brighter_than), "refuse above (bright)"},
      {"quality_refuse_contrast", Limit(refuse.flat_contrast), "refuse below (flat)"},
      {"quality_refuse_side", Within(refuse.small_side, 0, kMaxSide),
       "refuse below (small), pixels"},
      {"quality_warn_sharpness", Limit(warn.blur_sharpness), "warn below (blur)"},
      {"quality_warn_exposure", Limit(warn.darker_than), "warn below (dark)"},
      {"quality_warn_brightness", Limit(warn.brighter_than), "warn above (bright)"},
      {"quality_warn_contrast", Limit(warn.flat_contrast), "warn below (flat)"},
      {"quality_warn_side", Within(warn.small_side, 0, kMaxSide), "warn below (small), pixels"},
      {"max_image_pixels", Within(limits.max_pixels, int64_t{1}, kMaxPixels), "of one, decoded"},
      {"max_image_side", Within(limits.max_side, 1, kMaxSide), "pixels of the longer side"},
      {"max_pending_images", Value(vision.max_pending_images), "waiting to be encoded"},
  };
}

std::vector<Flag> DecodeFlags(ServeOptions& options) {
  decode::DecodeOptions& decode = options.server.decode;
  return {
      {"kv_cache_bytes", Budget(decode.kv_cache_bytes),
       "device memory of the KV cache; or a share of what is free, such as 40%"},
      {"kv_cache_dtype",
       OneOf<DType>(decode.kv_cache_dtype,
                    {{"f16", DType::kF16}, {"int8", DType::kI8}, {"f32", DType::kF32}}),
       "f16, int8 or f32"},
      {"kv_cache_zero_point", OnOff(decode.kv_cache_zero_point), "of int8, beside the scale"},
      {"prefix_cache", OnOff(decode.prefix_cache), "keep KV blocks for prompts that begin alike"},
      {"prefix_cache_bytes", Bytes(decode.prefix_cache_bytes), "of these, at most [no limit]"},
      {"block_size", Value(decode.block_size), "tokens of a KV block"},
      {"max_batch_tokens", Value(decode.max_batch_tokens), "of one step"},
      {"max_sequences", Value(decode.max_sequences), "answered at a time"},
      {"max_waiting", Value(decode.max_waiting), "requests that wait for a place"},
      {"max_ahead", Value(decode.max_ahead), "pictures read ahead of questions at a time"},
      {"slow_client_timeout", Value(decode.slow_client_timeout),
       "an answer that nobody reads for so long is aborted"},
  };
}

std::vector<Flag> GatewayFlags(ServeOptions& options) {
  gateway::GatewayOptions& gateway = options.server.gateway;
  return {
      {"model_name", ValueOrEmpty(options.server.model_name), "that clients use [directory's]"},
      {"quality_warning", ValueOrEmpty(gateway.quality_warning),
       "text put behind the question when a picture's quality is low"},
      {"max_image_bytes", Bytes(gateway.max_image_bytes), "of one encoded picture"},
      {"max_message_bytes", Bytes(gateway.max_message_bytes), "of one request"},
      {"max_upload_bytes", Bytes(gateway.max_upload_bytes), "of all uploads under way"},
      {"max_images", Value(gateway.max_images), "of one request"},
      {"max_requests", Value(gateway.max_requests), "in flight"},
      {"ahead_prefill", OnOff(gateway.ahead_prefill),
       "on: what is uploaded with a session is read ahead of its questions"},
      {"deadline_cap", Value(gateway.deadline_cap), "a longer deadline becomes this"},
      {"handle_ttl", Value(gateway.handle_ttl), "life of an image handle"},
      {"image_handle_key_file", ValueOrEmpty(options.server.image_handle_key_file),
       "key of image handles [a fresh one]"},
  };
}

std::vector<Flag> CommonFlags(ServeOptions& options) {
  LocalServerOptions& server = options.server;
  return {
      {"device", Value(options.device), "cpu or reference"},
      {"threads", Value(server.threads), "of the compute pool [what the machine grants]"},
      {"embedding_store", OneOf<std::string>(options.embedding_store, {{"memory", "memory"}}),
       "memory"},
      {"embedding_store_bytes", Bytes(server.embedding_store_bytes), "rows kept in memory"},
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
  out << "  gRPC            " << address << "\n";
  if (server.ops_port() != 0) {
    out << "  operations      " << WithPort(options.server.ops_address, server.ops_port())
        << " (/metrics /healthz /readyz /debug/state)\n";
  }
  const std::string model_dir = options.server.model_dir;
  out << "  try             " << options.program << " ask --address " << address << " --image "
      << model_dir << "/demo/shelf1.jpg --receipt \"What is the price on row 2?\"\n";
  out << "ready" << std::endl;
}

// One line while there is something to say.
void LogLoad(const decode::EngineStats& now, const decode::EngineStats& before) {
  const int64_t prompt = now.prompt_tokens - before.prompt_tokens;
  const int64_t generated = now.generation_tokens - before.generation_tokens;
  if (prompt + generated == 0 && now.running == 0) return;
  const double usage = now.blocks_total > 0 ? 100.0 * now.blocks_used / now.blocks_total : 0;
  const int64_t looked_up = now.prefix_queries - before.prefix_queries;
  const int64_t found = now.prefix_hits - before.prefix_hits;
  std::string line = absl::StrFormat(
      "prompt %.1f tokens/s, generation %.1f tokens/s, running %d, waiting %d, KV %.1f %%, prefix "
      "hit %.1f %%",
      1.0 * prompt / kReportSeconds, 1.0 * generated / kReportSeconds, now.running, now.waiting,
      usage, looked_up > 0 ? 100.0 * found / looked_up : 0);
  if (now.preemptions > before.preemptions) {
    absl::StrAppend(&line, ", preempted ", now.preemptions - before.preemptions);
  }
  base::Log(base::LogLevel::kInfo, line);
}

}  // namespace

void AddServiceFlags(CLI::App& app, ServeOptions& options) {
  for (auto* flags : {CommonFlags, VisionFlags, DecodeFlags, GatewayFlags}) {
    AddFlags(app, flags(options));
  }
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
  // Blocked before any thread starts, so all inherit it and only sigtimedwait sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ApplyServiceFlags(options);
  ASSIGN_OR_RETURN(const std::unique_ptr<LocalServer> server, LocalServer::Start(options.server));
  PrintReport(*server, options, changed_flags, out);

  decode::EngineStats before = server->decode().stats();
  const timespec interval = {kReportSeconds, 0};
  while (sigtimedwait(&signals, nullptr, &interval) < 0) {
    const decode::EngineStats now = server->decode().stats();
    LogLoad(now, before);
    before = now;
  }
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // a second signal ends the process at once
  out << "draining" << std::endl;
  server->Drain(options.drain_timeout);
  out << "stopped" << std::endl;
  return absl::OkStatus();
}

}  // namespace tessera::tools
