#include "tools/serve.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "tools/flags.h"

namespace tessera::tools {
namespace {

constexpr int kReportSeconds = 10;

absl::Status BadFlag(const std::string& flag, const std::string& value,
                     const std::string& supported) {
  return base::BadField(flag, "BAD_OPTION",
                        absl::StrCat("--", flag, " is \"", value, "\"; supported: ", supported));
}

// NaN fails every comparison: a threshold that is none would never refuse.
absl::Status CheckLimits(const vision::QualityLimits& limits, const std::string& prefix) {
  const std::pair<const char*, double> values[] = {{"_sharpness", limits.blur_sharpness},
                                                   {"_exposure", limits.darker_than},
                                                   {"_brightness", limits.brighter_than},
                                                   {"_contrast", limits.flat_contrast},
                                                   {"_side", limits.small_side}};
  for (const auto& [name, value] : values) {
    if (!(value >= 0 && value < 1e9)) {
      return BadFlag(prefix + name, absl::StrCat(value), "numbers from 0 to 1e9");
    }
  }
  return absl::OkStatus();
}

void AddVisionFlags(CLI::App& app, ServeOptions& options) {
  vision::VisionOptions& vision = options.server.vision;
  AddFlag(app, "vision_device", options.vision_device, "device of the vision service [--device]");
  AddFlag(app, "embedding_dtype", options.embedding_dtype, "dtype of stored rows: f16 or f32");
  AddFlag(app, "quality_gate", options.quality_gate, "on: bad pictures are warned of or refused");
  vision::QualityLimits& refuse = vision.quality_thresholds.refuse;
  vision::QualityLimits& warn = vision.quality_thresholds.warn;
  AddFlag(app, "quality_refuse_sharpness", refuse.blur_sharpness, "refuse below (blur)");
  AddFlag(app, "quality_refuse_exposure", refuse.darker_than, "refuse below (dark)");
  AddFlag(app, "quality_refuse_brightness", refuse.brighter_than, "refuse above (bright)");
  AddFlag(app, "quality_refuse_contrast", refuse.flat_contrast, "refuse below (flat)");
  AddFlag(app, "quality_refuse_side", refuse.small_side, "refuse below (small), pixels");
  AddFlag(app, "quality_warn_sharpness", warn.blur_sharpness, "warn below (blur)");
  AddFlag(app, "quality_warn_exposure", warn.darker_than, "warn below (dark)");
  AddFlag(app, "quality_warn_brightness", warn.brighter_than, "warn above (bright)");
  AddFlag(app, "quality_warn_contrast", warn.flat_contrast, "warn below (flat)");
  AddFlag(app, "quality_warn_side", warn.small_side, "warn below (small), pixels");
  AddFlag(app, "max_image_pixels", vision.image_limits.max_pixels, "of one picture, decoded");
  AddFlag(app, "max_image_side", vision.image_limits.max_side, "pixels of the longer side");
  AddFlag(app, "max_pending_images", vision.max_pending_images, "waiting to be encoded");
}

void AddDecodeFlags(CLI::App& app, ServeOptions& options) {
  decode::DecodeOptions& decode = options.server.decode;
  AddBytesFlag(app, "kv_cache_bytes", decode.kv_cache_bytes, "device memory of the KV cache");
  AddFlag(app, "kv_cache_dtype", options.kv_cache_dtype, "f16 or f32");
  AddFlag(app, "block_size", decode.block_size, "tokens of a KV block");
  AddFlag(app, "max_batch_tokens", decode.max_batch_tokens, "of one step");
  AddFlag(app, "max_sequences", decode.max_sequences, "answered at a time");
  AddFlag(app, "max_waiting", decode.max_waiting, "requests that wait for a place");
}

void AddGatewayFlags(CLI::App& app, ServeOptions& options) {
  gateway::GatewayOptions& gateway = options.server.gateway;
  AddFlag(app, "model_name", options.server.model_name, "name that clients use [directory's]");
  AddFlag(app, "quality_warning", gateway.quality_warning,
          "text put behind the question when a picture's quality is low");
  AddBytesFlag(app, "max_image_bytes", gateway.max_image_bytes, "of one encoded picture");
  AddBytesFlag(app, "max_message_bytes", gateway.max_message_bytes, "of one request");
  AddBytesFlag(app, "max_upload_bytes", gateway.max_upload_bytes, "of all uploads under way");
  AddFlag(app, "max_images", gateway.max_images, "of one request");
  AddFlag(app, "max_requests", gateway.max_requests, "in flight");
  AddDurationFlag(app, "deadline_cap", gateway.deadline_cap, "a longer deadline becomes this");
  AddDurationFlag(app, "handle_ttl", gateway.handle_ttl, "life of an image handle");
  AddFlag(app, "image_handle_key_file", options.server.image_handle_key_file,
          "key of image handles [a fresh one]");
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
  out << "  vision          " << seen.device << ", weights " << BytesText(seen.memory.weights)
      << "\n";
  out << "  decode          " << read.device << ", weights " << BytesText(read.memory.weights)
      << ", KV " << BytesText(read.memory.kv_cache) << "\n";
  out << absl::StrFormat("  KV cache: %d tokens, %.2f requests of 4096\n", read.kv_cache_tokens,
                         read.kv_cache_requests);
  const std::string host =
      options.server.grpc_address.substr(0, options.server.grpc_address.rfind(':'));
  const std::string address = absl::StrCat(host, ":", server.port());
  out << "  gRPC            " << address << "\n";
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
  base::Log(base::LogLevel::kInfo,
            absl::StrFormat("prompt %.1f tokens/s, generation %.1f tokens/s, running %d, waiting "
                            "%d, KV %.1f %%",
                            1.0 * prompt / kReportSeconds, 1.0 * generated / kReportSeconds,
                            now.running, now.waiting, usage));
}

}  // namespace

void AddServiceFlags(CLI::App& app, ServeOptions& options) {
  AddFlag(app, "device", options.device, "cpu or reference");
  AddFlag(app, "threads", options.server.threads, "of the compute pool [what the machine grants]");
  AddFlag(app, "embedding_store", options.embedding_store, "memory");
  AddBytesFlag(app, "embedding_store_bytes", options.server.embedding_store_bytes,
               "rows kept in memory");
  AddVisionFlags(app, options);
  AddDecodeFlags(app, options);
  AddGatewayFlags(app, options);
}

absl::Status ApplyServiceFlags(ServeOptions& options) {
  LocalServerOptions& server = options.server;
  server.decode.device = options.device;
  server.vision.device = options.vision_device.empty() ? options.device : options.vision_device;
  if (options.embedding_store != "memory") {
    return BadFlag("embedding_store", options.embedding_store, "memory");
  }
  if (options.quality_gate != "on" && options.quality_gate != "off") {
    return BadFlag("quality_gate", options.quality_gate, "on, off");
  }
  server.vision.quality_gate = options.quality_gate == "on";
  for (const auto& [flag, text, dtype] :
       {std::tuple<std::string, std::string, DType*>{"kv_cache_dtype", options.kv_cache_dtype,
                                                     &server.decode.kv_cache_dtype},
        {"embedding_dtype", options.embedding_dtype, &server.vision.embedding_dtype}}) {
    if (text != "f16" && text != "f32") return BadFlag(flag, text, "f16, f32");
    *dtype = text == "f16" ? DType::kF16 : DType::kF32;
  }
  server.vision.image_limits.max_bytes = server.gateway.max_image_bytes;
  RETURN_IF_ERROR(CheckLimits(server.vision.quality_thresholds.refuse, "quality_refuse"));
  RETURN_IF_ERROR(CheckLimits(server.vision.quality_thresholds.warn, "quality_warn"));
  if (server.vision.image_limits.max_pixels < 1) {
    return BadFlag("max_image_pixels", absl::StrCat(server.vision.image_limits.max_pixels),
                   "1 and more");
  }
  if (server.vision.image_limits.max_side < 1) {
    return BadFlag("max_image_side", absl::StrCat(server.vision.image_limits.max_side),
                   "1 and more");
  }
  return absl::OkStatus();
}

absl::Status Serve(ServeOptions options, const std::vector<std::string>& changed_flags,
                   std::ostream& out) {
  // Blocked before any thread starts, so all inherit it and only sigtimedwait sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  RETURN_IF_ERROR(ApplyServiceFlags(options));
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
