#include "tools/local_server.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/store/rows.h"
#include "services/decode/record_tiers.h"
#include "services/gateway/pictures/image_handle.h"

namespace tessera::tools {
namespace {

// In-process services take whole requests of the gateway; chunks and texts stay far below.
constexpr int kInnerMessageBytes = 64 << 20;

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
  std::error_code error;  // what cannot be looked at is not there
  if (options.model_dir.empty() || !std::filesystem::is_directory(options.model_dir, error)) {
    return base::BadField("model", "MODEL_NOT_FOUND",
                          absl::StrCat("--model \"", options.model_dir,
                                       "\" is no directory: give one in Hugging Face layout, "
                                       "such as models/shelf-vqa"));
  }
  const std::filesystem::path config = std::filesystem::path(options.model_dir) / "config.json";
  if (!std::filesystem::exists(config, error)) {
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

gateway::FrontOptions FrontOf(const LocalServerOptions& options) {
  return {.grpc_address = options.grpc_address,
          .http = options.http,
          .access = options.access,
          .reflection = options.reflection,
          .max_message_bytes = static_cast<int>(options.gateway.max_message_bytes)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Start(LocalServerOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  if (options.model_name.empty()) options.model_name = NameOf(options.model_dir);
  RETURN_IF_ERROR(FrontOf(options).Check());
  options.vision.model_dir = options.decode.model_dir = options.model_dir;
  options.gateway.model_name = options.model_name;
  options.vision.tenant_share = options.gateway.tenant_share;
  options.gateway.slow_client_timeout = options.decode.slow_client_timeout;
  ASSIGN_OR_RETURN(options.gateway.handle_key, gateway::HandleKey(options.image_handle_key_file));
  RETURN_IF_ERROR(options.gateway.Validate());

  auto server = std::unique_ptr<LocalServer>(new LocalServer());
  ASSIGN_OR_RETURN(server->keys_,
                   rpc::ApiKeys::Create(options.access.api_keys_file, base::RealClock()));
  options.gateway.api_keys = server->keys_->on() ? server->keys_.get() : nullptr;
  ASSIGN_OR_RETURN(server->process_, service::Process::Create({.grpc_address = options.grpc_address,
                                                               .ops_address = options.ops_address,
                                                               .model_name = options.model_name,
                                                               .traces = options.traces}));
  rpc::SpanExporter* const spans = server->process_->spans();
  options.gateway.spans = options.vision.spans = options.decode.spans = spans;
  if (options.ops_address.empty()) {
    server->process_->KnowWithoutPort(server->MakePages());
  } else {
    ASSIGN_OR_RETURN(server->ops_server_, server->process_->Listen(server->MakePages()));
  }
  RETURN_IF_ERROR(server->Load(options));
  server->process_->TellModel(options.model_dir, server->vision_->info().fingerprint);
  server->TellCanary();
  server->process_->state().SetLoaded();
  server->FollowHealth();
  return server;
}

absl::Status LocalServer::Load(const LocalServerOptions& options) {
  base::Clock& clock = base::RealClock();
  metrics::Metrics& metrics = process_->metrics();
  pool_ = std::make_unique<base::ComputePool>(
      options.threads > 0 ? options.threads : base::ComputePool::AvailableCpus());
  ASSIGN_OR_RETURN(stores_, store::StoreSet::Create(options.store, metrics));
  ASSIGN_OR_RETURN(
      vision_, vision::VisionRuntime::Create(options.vision, *pool_, vision::VisionStores(*stores_),
                                             clock, metrics));
  RETURN_IF_ERROR(CheckStore(options, vision_->info()));
  stores_->ExpectRowWidth(vision_->info().width);
  ASSIGN_OR_RETURN(
      decode_,
      decode::DecodeRuntime::Create(
          options.decode, *pool_,
          decode::MakeRecordReader({stores_->local(), stores_->shared(), nullptr, metrics}), clock,
          metrics));
  const rpc::ServerOptions inner = {.address = "",
                                    .max_receive_bytes = kInnerMessageBytes,
                                    .reflection = false,
                                    .metrics = &metrics};
  ASSIGN_OR_RETURN(vision_server_,
                   rpc::Server::Start(inner, {vision_->service()}, {"tessera.v1.VisionService"}));
  ASSIGN_OR_RETURN(decode_server_,
                   rpc::Server::Start(inner, {decode_->service()}, {"tessera.v1.DecodeService"}));
  ASSIGN_OR_RETURN(gateway_, gateway::GatewayRuntime::Create(
                                 options.gateway,
                                 gateway::GatewayPeers::Local(vision_server_->InProcessChannel(),
                                                              decode_server_->InProcessChannel()),
                                 clock, metrics));
  ASSIGN_OR_RETURN(front_, gateway::Front::Start(FrontOf(options), {*gateway_, *keys_, *process_}));
  return absl::OkStatus();
}

void LocalServer::Drain(absl::Duration timeout, absl::Duration delay) {
  if (front_ != nullptr && !drained_) {
    drained_ = true;
    const absl::Time deadline = base::RealClock().Now() + delay + timeout;
    front_->Drain(timeout, delay);
    vision_->Drain(deadline);
    decode_->Drain(deadline);
  }
  if (vision_server_ != nullptr) vision_server_->Shutdown(absl::Seconds(1));
  if (decode_server_ != nullptr) decode_server_->Shutdown(absl::Seconds(1));
}

LocalServer::~LocalServer() { Drain(absl::ZeroDuration(), absl::ZeroDuration()); }

}  // namespace tessera::tools
