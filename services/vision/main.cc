#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/flags/command.h"
#include "common/service/flags.h"
#include "common/service/inner_process.h"
#include "services/vision/load_line.h"
#include "services/vision/origin.h"
#include "services/vision/vision_flags.h"
#include "services/vision/vision_runtime.h"

namespace tessera::vision {
namespace {

struct Options {
  service::InnerOptions inner = {
      .process = {.grpc_address = "127.0.0.1:9100", .ops_address = "127.0.0.1:9465"}};
  VisionOptions vision;
};

void AddFlags(flags::Command& command, Options& options) {
  using flags::Value;
  command.AddRequired({"model", Value(options.vision.model_dir), "model directory"});
  command.Add(
      {{"device", Value(options.vision.device), "cpu or reference"},
       {"origin", flags::ValueOrEmpty(options.vision.origin),
        "host:port by which decode reads records of this process, as in its --vision_origins "
        "[grpc_address; needed where that is every address of a machine]"},
       {"tenant_share", Value(options.vision.tenant_share),
        "of the pictures that wait, that one tenant may have"},
       {"max_image_bytes", flags::Bytes(options.vision.image_limits.max_bytes),
        "of one encoded picture; the gateway's must not be larger"}});
  command.Add(service::InnerFlags(options.inner));
  command.Add(VisionFlags(options.vision));
}

class Service final : public service::InnerService {
 public:
  explicit Service(const Options& options)
      : grpc_address_(options.inner.process.grpc_address), options_(options.vision) {}

  service::Pages MakePages() override {
    return {
        .name = "vision",
        .update = [this] { runtime_->UpdateMetrics(); },
        .state = [this] { return State(); },
        .workers = {{"encoder",
                     [this] {
                       const PipelineStats stats = runtime_->stats();
                       return service::Progress{stats.encoder_has_work, stats.batches};
                     },
                     [this] { return runtime_->health(); }},
                    {"finishing",
                     [this] {
                       const PipelineStats stats = runtime_->stats();
                       return service::Progress{stats.finishing_has_work, stats.finished_batches};
                     },
                     nullptr}},
        .readiness = {{"device", [this] { return runtime_->health(); }}}};
  }
  absl::Status Load(const service::Ground& ground) override {
    ASSIGN_OR_RETURN(options_.origin, OriginOf(options_.origin, grpc_address_));
    options_.spans = ground.process.spans();
    stores_ = &ground.stores;
    ASSIGN_OR_RETURN(runtime_,
                     VisionRuntime::Create(options_, ground.pool, VisionStores(ground.stores),
                                           base::RealClock(), ground.process.metrics()));
    ground.stores.ExpectRowWidth(runtime_->info().width);
    ground.process.TellModel(options_.model_dir, runtime_->info().fingerprint);
    return absl::OkStatus();
  }

  grpc::Service* grpc_service() override { return runtime_->service(); }
  const weights::CanaryResult& canary() const override { return runtime_->canary(); }
  std::string Report() const override {
    const VisionInfo& info = runtime_->info();
    return absl::StrCat("  device          ", info.device, ", weights ",
                        base::BytesText(info.memory.weights));
  }
  void LogLoad(absl::Duration span) override {
    const VisionAnswers now = runtime_->answers();
    const auto line = LoadLine(now, before_, runtime_->stats(), span);
    if (line) base::Log(base::LogLevel::kInfo, *line);
    before_ = now;
  }
  void Drain(absl::Time deadline) override { runtime_->Drain(deadline); }

 private:
  base::Json State() const {
    const PipelineStats stats = runtime_->stats();
    return {{"pending_images", stats.pending_images},
            {"batches", stats.batches},
            {"store_bytes", stores_->local().bytes()}};
  }

  const std::string grpc_address_;
  VisionOptions options_;
  store::StoreSet* stores_ = nullptr;
  std::unique_ptr<VisionRuntime> runtime_;
  VisionAnswers before_;  // at the last LogLoad
};

int Main(int argc, char** argv) {
  const service::InnerNames names = {"tessera-vision", "tessera.v1.VisionService"};
  Options options;
  flags::Command command(names.program, "Pictures to rows: the vision service of Tessera.");
  AddFlags(command, options);
  return service::RunMain(argc, argv, command, names.program, [&] {
    return service::RunInner(options.inner, names, command.Changed(),
                             std::make_unique<Service>(options));
  });
}

}  // namespace
}  // namespace tessera::vision

int main(int argc, char** argv) { return tessera::vision::Main(argc, argv); }
