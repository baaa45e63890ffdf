#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/flags/command.h"
#include "common/rpc/channel.h"
#include "common/service/flags.h"
#include "common/service/inner_process.h"
#include "services/decode/decode_flags.h"
#include "services/decode/decode_runtime.h"
#include "services/decode/load_line.h"
#include "services/decode/origin_client.h"
#include "services/decode/record_tiers.h"

namespace tessera::decode {
namespace {

constexpr int kRecordWindowBytes = 4 << 20;  // records come in chunks of 1 MiB

struct Options {
  service::InnerOptions inner = {
      .process = {.grpc_address = "127.0.0.1:9200", .ops_address = "127.0.0.1:9466"}};
  service::PeerOptions peers;
  std::string vision_origins = "127.0.0.1:9100";
  DecodeOptions decode;
};

void AddFlags(flags::Command& command, Options& options) {
  using flags::Value;
  command.AddRequired({"model", Value(options.decode.model_dir), "model directory"});
  command.Add({{"device", Value(options.decode.device), "cpu or reference"},
               {"vision_origins", flags::ValueOrEmpty(options.vision_origins),
                "host:port,... of vision replicas whose records are read; *:port is any host"}});
  command.Add(service::InnerFlags(options.inner));
  command.Add(service::PeerFlags(options.peers));
  command.Add(DecodeFlags(options.decode));
}

class Service final : public service::InnerService {
 public:
  explicit Service(Options options) : options_(std::move(options)) {}

  service::Pages MakePages() override {
    return {.name = "decode",
            .update = [this] { runtime_->UpdateMetrics(); },
            .state = [this] { return State(); },
            .workers = {{"engine",
                         [this] {
                           const EngineProgress progress = runtime_->progress();
                           return service::Progress{progress.has_work, progress.steps};
                         },
                         [this] { return runtime_->health(); }}},
            .readiness = {{"device", [this] { return runtime_->health(); }}}};
  }
  absl::Status Load(const service::Ground& ground) override {
    options_.decode.spans = ground.process.spans();
    stores_ = &ground.stores;
    OriginOptions origins;
    origins.addresses = absl::StrSplit(options_.vision_origins, ',', absl::SkipEmpty());
    if (origins.addresses.empty() && ground.stores.shared() == nullptr) {
      base::Log(base::LogLevel::kWarning,
                "without --vision_origins and a store that vision has too (--embedding_store) "
                "there is no way for a picture's rows to come here");
    }
    ASSIGN_OR_RETURN(rpc::ChannelOptions channel, options_.peers.Channel());
    channel.receive_window_bytes = kRecordWindowBytes;
    origin_ = std::make_unique<OriginClient>(
        origins, [channel](const std::string& address) { return rpc::Connect(address, channel); },
        ground.stores.codec(), base::RealClock());
    metrics::Metrics& metrics = ground.process.metrics();
    const RecordTiers tiers = {ground.stores.local(), ground.stores.shared(), origin_.get(),
                               metrics};
    ASSIGN_OR_RETURN(runtime_,
                     DecodeRuntime::Create(options_.decode, ground.pool, MakeRecordReader(tiers),
                                           base::RealClock(), metrics));
    ground.stores.ExpectRowWidth(runtime_->info().width);
    ground.process.TellModel(options_.decode.model_dir, runtime_->info().digest);
    return absl::OkStatus();
  }

  grpc::Service* grpc_service() override { return runtime_->service(); }
  const weights::CanaryResult& canary() const override { return runtime_->canary(); }
  std::string Report() const override {
    const DecodeInfo& info = runtime_->info();
    return absl::StrCat("  device          ", info.device, ", weights ",
                        base::BytesText(info.memory.weights),
                        "\n  KV cache: ", info.kv_cache_tokens, " tokens, ", info.kv_cache_requests,
                        " requests of 4096");
  }
  void LogLoad(absl::Duration span) override {
    const EngineStats now = runtime_->stats();
    if (const auto line = LoadLine(now, before_, span)) base::Log(base::LogLevel::kInfo, *line);
    before_ = now;
  }
  void Drain(absl::Time deadline) override { runtime_->Drain(deadline); }

 private:
  base::Json State() const {
    base::Json json = runtime_->State();
    json["store_bytes"] = stores_->local().bytes();
    return json;
  }

  Options options_;
  store::StoreSet* stores_ = nullptr;
  std::unique_ptr<OriginClient> origin_;  // the runtime reads from it
  std::unique_ptr<DecodeRuntime> runtime_;
  EngineStats before_;  // at the last LogLoad
};

int Main(int argc, char** argv) {
  const service::InnerNames names = {"tessera-decode", "tessera.v1.DecodeService"};
  Options options;
  flags::Command command(names.program,
                         "Messages and rows to text: the decode service of Tessera.");
  AddFlags(command, options);
  return service::RunMain(argc, argv, command, names.program, [&] {
    return service::RunInner(options.inner, names, command.Changed(),
                             std::make_unique<Service>(options));
  });
}

}  // namespace
}  // namespace tessera::decode

int main(int argc, char** argv) { return tessera::decode::Main(argc, argv); }
