#include "tools/local_server.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/rpc/resolve.h"
#include "common/store/rows.h"
#include "services/decode/record_tiers.h"
#include "services/gateway/http/http_done.h"
#include "services/gateway/http/http_flags.h"
#include "tools/version.h"

namespace tessera::tools {
namespace {

// In-process services take whole requests of the gateway; chunks and texts stay far below.
constexpr int kInnerMessageBytes = 64 << 20;

absl::StatusOr<std::string> HandleKey(const std::string& file) {
  if (file.empty()) return base::RandomBytes(32);
  absl::StatusOr<std::string> key = base::ReadFile(file, 4096);
  if (!key.ok()) return base::Annotate(key.status(), "--image_handle_key_file");
  return key;
}

// A store that cannot hold one record would answer no picture.
absl::Status CheckStore(const LocalServerOptions& options, const vision::VisionInfo& vision) {
  constexpr size_t kHeaderBytes = 4096;
  // int8 rows that would lose too much are kept in f16.
  const DType dtype = options.vision.embedding_dtype == DType::kF32 ? DType::kF32 : DType::kF16;
  const size_t record = store::RowBytes(dtype, vision.rows_per_image, vision.width) + kHeaderBytes;
  if (options.store.memory_bytes >= record) return absl::OkStatus();
  return base::BadField("embedding_store_bytes", "BAD_OPTION",
                        absl::StrCat("--embedding_store_bytes is ", options.store.memory_bytes,
                                     "; the rows of one picture take ", record));
}

std::string NameOf(const std::string& model_dir) {
  const std::filesystem::path path(model_dir);
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

absl::Status CheckOptions(const LocalServerOptions& options) {
  if (options.model_dir.empty() || !std::filesystem::is_directory(options.model_dir)) {
    return base::BadField("model", "MODEL_NOT_FOUND",
                          absl::StrCat("--model \"", options.model_dir,
                                       "\" is no directory: give one in Hugging Face layout, "
                                       "such as models/shelf-vqa"));
  }
  if (!std::filesystem::exists(std::filesystem::path(options.model_dir) / "config.json")) {
    return base::BadField("model", "MODEL_NOT_FOUND",
                          absl::StrCat("--model \"", options.model_dir,
                                       "\" has no config.json: give a directory in Hugging Face "
                                       "layout, such as models/shelf-vqa"));
  }
  if (options.threads < 0 || options.threads > 1024) {
    return base::BadField("threads", "BAD_OPTION", "--threads must be from 0 to 1024");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Start(LocalServerOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  if (options.model_name.empty()) options.model_name = NameOf(options.model_dir);
  RETURN_IF_ERROR(rpc::CheckExposure(options.access, "grpc_address", options.grpc_address));
  RETURN_IF_ERROR(rpc::CheckExposure(options.access, "http_address", options.http.address));
  gateway::http::ApplyAccess(options.access, options.http);
  RETURN_IF_ERROR(options.http.Validate());
  RETURN_IF_ERROR(rpc::CheckFree("grpc_address", options.grpc_address));
  RETURN_IF_ERROR(rpc::CheckFree("http_address", options.http.address));
  options.vision.model_dir = options.decode.model_dir = options.model_dir;
  options.gateway.model_name = options.model_name;
  ASSIGN_OR_RETURN(options.gateway.handle_key, HandleKey(options.image_handle_key_file));
  RETURN_IF_ERROR(options.gateway.Validate());

  auto server = std::unique_ptr<LocalServer>(new LocalServer());
  ASSIGN_OR_RETURN(server->keys_,
                   rpc::ApiKeys::Create(options.access.api_keys_file, base::RealClock()));
  options.gateway.api_keys = server->keys_.get();
  server->metrics_ = std::make_unique<metrics::Metrics>(options.model_name);
  server->state_ =
      std::make_unique<ops::ServerState>(*server->metrics_, base::RealClock(), kVersion);
  ASSIGN_OR_RETURN(
      server->spans_,
      rpc::SpanExporter::Create(options.traces, {kVersion, options.model_name}, *server->metrics_));
  options.gateway.spans = options.vision.spans = options.decode.spans = server->spans_.get();
  if (!options.ops_address.empty()) {
    RETURN_IF_ERROR(server->ListenForOperations(options.ops_address));
  }
  RETURN_IF_ERROR(server->Load(options));
  server->TellModel();
  server->TellCanary();
  server->state_->SetLoaded();
  return server;
}

absl::Status LocalServer::Load(const LocalServerOptions& options) {
  base::Clock& clock = base::RealClock();
  pool_ = std::make_unique<base::ComputePool>(
      options.threads > 0 ? options.threads : base::ComputePool::AvailableCpus());
  ASSIGN_OR_RETURN(stores_, store::StoreSet::Create(options.store, *metrics_));
  ASSIGN_OR_RETURN(
      vision_, vision::VisionRuntime::Create(options.vision, *pool_, vision::VisionStores(*stores_),
                                             clock, *metrics_));
  RETURN_IF_ERROR(CheckStore(options, vision_->info()));
  ASSIGN_OR_RETURN(
      decode_,
      decode::DecodeRuntime::Create(
          options.decode, *pool_,
          decode::MakeRecordReader({stores_->local(), stores_->shared(), nullptr, *metrics_}),
          clock, *metrics_));
  const rpc::ServerOptions inner = {.address = "",
                                    .max_receive_bytes = kInnerMessageBytes,
                                    .reflection = false,
                                    .metrics = metrics_.get()};
  ASSIGN_OR_RETURN(vision_server_,
                   rpc::Server::Start(inner, {vision_->service()}, {"tessera.v1.VisionService"}));
  ASSIGN_OR_RETURN(decode_server_,
                   rpc::Server::Start(inner, {decode_->service()}, {"tessera.v1.DecodeService"}));
  ASSIGN_OR_RETURN(gateway_, gateway::GatewayRuntime::Create(
                                 options.gateway,
                                 gateway::GatewayPeers::Local(vision_server_->InProcessChannel(),
                                                              decode_server_->InProcessChannel()),
                                 clock, *metrics_));
  const rpc::ServerOptions outer = {
      .address = options.grpc_address,
      .max_receive_bytes = static_cast<int>(options.gateway.max_message_bytes),
      .reflection = options.reflection.value_or(!keys_->on()),
      .metrics = metrics_.get(),
      .tls = options.access.tls};
  ASSIGN_OR_RETURN(gateway_server_,
                   rpc::Server::Start(outer, {gateway_->service()}, {"tessera.v1.GatewayService"}));
  return ListenForHttp(options);
}

absl::Status LocalServer::ListenForHttp(const LocalServerOptions& options) {
  if (options.http.address.empty()) return absl::OkStatus();
  gateway::http::HttpParts parts = {
      .answer = gateway_->answer_parts(),
      .model = gateway_->model_info(),
      .version = kVersion,
      .tenant = [this](absl::string_view key) { return keys_->TenantOf(key); },
      .health = [this] { return state_->Health(); },
      .done = gateway::http::TellRefusals(spans_.get())};
  ASSIGN_OR_RETURN(http_server_, gateway::http::HttpServer::Start(options.http, std::move(parts)));
  return absl::OkStatus();
}

void LocalServer::Drain(absl::Duration timeout) {
  if (gateway_server_ != nullptr && !drained_) {
    drained_ = true;
    state_->SetDraining();
    const absl::Time deadline = base::RealClock().Now() + timeout;
    gateway_server_->SetReady(false);
    gateway_->Drain(timeout);
    if (http_server_) http_server_->Shutdown(deadline - base::RealClock().Now());
    gateway_server_->Shutdown(absl::Seconds(1));
    vision_->Drain(deadline);
    decode_->Drain(deadline);
  }
  if (vision_server_ != nullptr) vision_server_->Shutdown(absl::Seconds(1));
  if (decode_server_ != nullptr) decode_server_->Shutdown(absl::Seconds(1));
}

LocalServer::~LocalServer() { Drain(absl::ZeroDuration()); }

}  // namespace tessera::tools
