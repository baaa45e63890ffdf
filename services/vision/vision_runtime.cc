#include "services/vision/vision_runtime.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check_range.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/worker_pool.h"
#include "common/weights/weights.h"
#include "kernels/create/create.h"
#include "services/vision/encoder/canary.h"
#include "services/vision/encoder/encode_pipeline.h"
#include "services/vision/encoder/identity.h"
#include "services/vision/encoder/row_plan.h"
#include "services/vision/image/image.h"
#include "services/vision/preprocess/preprocess.h"
#include "services/vision/tower/clip_tower.h"
#include "services/vision/vision_service.h"

namespace tessera::vision {
namespace {

constexpr size_t kMaxLookups = 1024;  // waiting for a lookup thread
// Of GetRecord, which only reads memory, and bounds how many there are.
constexpr size_t kMostRefused = 4096, kMostRefusedOfTenant = 512;  // pictures
constexpr int kRecordThreads = 2;
constexpr size_t kMaxRecords = 64;

absl::Status Validate(const VisionOptions& options) {
  if (options.embedding_dtype != DType::kF16 && options.embedding_dtype != DType::kF32 &&
      options.embedding_dtype != DType::kI8) {
    return base::BadField("embedding_dtype", "BAD_OPTION",
                          absl::StrCat("embedding_dtype = ", tessera::Name(options.embedding_dtype),
                                       "; supported: F16, F32, I8"));
  }
  RETURN_IF_ERROR(base::CheckRange("prepare_threads", options.prepare_threads, 1, 64));
  RETURN_IF_ERROR(base::CheckRange("lookup_threads", options.lookup_threads, 1, 64));
  RETURN_IF_ERROR(base::CheckRange("max_batch_images", options.max_batch_images, 1, 256));
  RETURN_IF_ERROR(base::CheckShare("tenant_share", options.tenant_share));
  return base::CheckRange("max_pending_images", static_cast<int64_t>(options.max_pending_images), 1,
                          1 << 20);
}

// They outlive the steps.
struct StepDeps {
  base::Clock& clock;
  const VisionMetrics& metrics;
};

PrepareSteps MakeSteps(const ImageLimits& limits, const PreprocessConfig& config,
                       const QualityGate& gate, const StepDeps& deps) {
  PrepareSteps steps;
  steps.decode = [limits](absl::string_view bytes, const StillWanted& wanted) {
    return DecodeImage(bytes, limits, wanted);
  };
  steps.preprocess = [config, gate, deps](const RgbImage& image) -> absl::StatusOr<Prepared> {
    ASSIGN_OR_RETURN(Preprocessed input, Preprocess(image, config));
    const absl::Time begin = deps.clock.Now();
    const QualityScores scores =
        ScoreQuality(input.u8.data(), input.height, input.width, image.width, image.height);
    if (const absl::Status status = gate.Check(scores); !status.ok()) {
      deps.metrics.OnVerdict(*gate.Judge(scores));  // others are judged when the record is read
      return status;
    }
    return Prepared{input.height, input.width, std::move(input.pixel_values), ScoreMap(scores),
                    deps.clock.Now() - begin};
  };
  return steps;
}

// "a.layers.5.x", "a.layers.5.y", "b" become "a.layers.5.* (2)", "b": a line must hold the list.
std::vector<std::string> GroupLayers(const std::vector<std::string>& names) {
  constexpr absl::string_view kLayers = ".layers.";
  std::map<std::string, int> groups;
  for (const std::string& name : names) {
    const size_t at = name.find(kLayers.data());
    const size_t end = at == std::string::npos ? at : name.find('.', at + kLayers.size());
    ++groups[end == std::string::npos ? name : absl::StrCat(name.substr(0, end), ".*")];
  }
  std::vector<std::string> lines;
  for (const auto& [name, count] : groups) {
    lines.push_back(count == 1 ? name : absl::StrCat(name, " (", count, ")"));
  }
  return lines;
}

void LogUnused(const std::vector<std::string>& names) {
  if (names.empty()) return;
  base::Log(base::LogLevel::kInfo,
            absl::StrCat("vision: tensors that this model's config does not ask for: ",
                         absl::StrJoin(GroupLayers(names), ", ")));
}

}  // namespace

// In the order of birth: what comes later uses what comes before.
struct VisionRuntime::Stack {
  explicit Stack(metrics::Metrics& all) : metrics(all) {}

  VisionMetrics metrics;
  VisionConfig config;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<ClipTower> tower;
  RowIdentity identity;
  VisionInfo info;
  weights::CanaryResult canary;
  std::unique_ptr<EncodePipeline> pipeline;
  std::unique_ptr<HeldRecords> held;
  RefusedPictures refused{kMostRefused, kMostRefusedOfTenant};
  std::unique_ptr<base::WorkerPool> lookups, records;
  std::unique_ptr<VisionService> service;

  absl::Status LoadTower(const VisionOptions& options, base::ComputePool& pool);
  void Start(const VisionOptions& options, const VisionStores& stores, base::Clock& clock);
};

absl::Status VisionRuntime::Stack::LoadTower(const VisionOptions& options,
                                             base::ComputePool& pool) {
  ASSIGN_OR_RETURN(config, LoadVisionConfig(options.model_dir));
  ASSIGN_OR_RETURN(backend, kernels::CreateBackend(options.device, pool));
  ASSIGN_OR_RETURN(const auto weights, weights::Weights::Open(options.model_dir));
  TensorSource tensors(*weights);
  auto loaded = ClipTower::Create(config.tower, tensors, *backend);
  if (!loaded.ok()) return base::Annotate(loaded.status(), options.model_dir);
  tower = *std::move(loaded);
  LogUnused(tensors.Unused(tower->prefixes()));

  identity.preprocessing = config.preprocess.Canonical();
  identity.tower = config.tower.Canonical();
  identity.weight_bytes = weights->Digest(tensors.used());
  identity.compute_dtype = absl::StartsWith(options.device, "cuda") ? DType::kF16 : DType::kF32;
  identity.record_dtype = options.embedding_dtype;
  info.loaded_bytes = tensors.used_bytes();
  canary = weights::RunCanary(options.model_dir, [this](const weights::Canary& file) {
    return CheckCanary(file, config, *tower, identity.compute_dtype, identity.record_dtype);
  });
  return weights->CheckUnchanged();
}

void VisionRuntime::Stack::Start(const VisionOptions& options, const VisionStores& stores,
                                 base::Clock& clock) {
  const QualityGate gate(options.quality_gate, options.quality_thresholds);
  info.fingerprint = FingerprintOf(identity, gate);
  info.rows_per_image = config.tower.rows();
  info.width = config.tower.width();
  info.device = backend->name();
  info.memory = backend->memory();
  metrics.SetMemory(options.device, info.memory);

  PipelineOptions pipeline_options;
  pipeline_options.prepare_threads = options.prepare_threads;
  pipeline_options.max_pending_images = options.max_pending_images;
  pipeline_options.max_pending_bytes = options.max_pending_bytes;
  pipeline_options.tenant_share = options.tenant_share;
  pipeline_options.max_decode_bytes = options.image_limits.max_decode_bytes;
  pipeline_options.max_batch_images = options.max_batch_images;
  pipeline_options.record_dtype = options.embedding_dtype;
  pipeline_options.preprocessing = identity.preprocessing;
  pipeline_options.model_revision = base::ToHex(identity.weight_bytes);
  pipeline = std::make_unique<EncodePipeline>(
      pipeline_options,
      MakeSteps(options.image_limits, config.preprocess, gate, StepDeps{clock, metrics}),
      PipelineDeps{*tower, stores.store, clock, metrics.encoder()});
  held = std::make_unique<HeldRecords>(options.max_held_bytes);
  lookups = std::make_unique<base::WorkerPool>(options.lookup_threads, kMaxLookups);
  records = std::make_unique<base::WorkerPool>(kRecordThreads, kMaxRecords);

  v1::VisionServiceGetInfoResponse answer;
  answer.set_rows_per_image(static_cast<uint32_t>(info.rows_per_image));
  answer.set_width(static_cast<uint32_t>(info.width));
  answer.set_device(info.device);
  answer.set_weight_bytes(info.memory.weights);
  service = std::make_unique<VisionService>(
      VisionServiceDeps{*pipeline,
                        *lookups,
                        *records,
                        stores.store,
                        stores.local,
                        *held,
                        refused,
                        clock,
                        metrics,
                        identity,
                        gate,
                        options.image_limits,
                        [this](const ImageHeader& header) { return PlanRows(header, config); },
                        answer,
                        stores.codec,
                        options.origin,
                        static_cast<uint32_t>(options.max_pending_images),
                        options.spans,
                        stores.tiered,
                        canary.status.ok()});
}

absl::StatusOr<std::unique_ptr<VisionRuntime>> VisionRuntime::Create(const VisionOptions& options,
                                                                     base::ComputePool& pool,
                                                                     const VisionStores& stores,
                                                                     base::Clock& clock,
                                                                     metrics::Metrics& metrics) {
  RETURN_IF_ERROR(Validate(options));
  auto stack = std::make_unique<Stack>(metrics);
  RETURN_IF_ERROR(stack->LoadTower(options, pool));
  stack->Start(options, stores, clock);
  return std::unique_ptr<VisionRuntime>(new VisionRuntime(std::move(stack)));
}

VisionRuntime::VisionRuntime(std::unique_ptr<Stack> stack) : stack_(std::move(stack)) {}
VisionRuntime::~VisionRuntime() = default;

grpc::Service* VisionRuntime::service() { return stack_->service.get(); }
const VisionInfo& VisionRuntime::info() const { return stack_->info; }
const weights::CanaryResult& VisionRuntime::canary() const { return stack_->canary; }
VisionAnswers VisionRuntime::answers() const { return stack_->metrics.answers(); }
PipelineStats VisionRuntime::stats() const { return stack_->pipeline->stats(); }
void VisionRuntime::UpdateMetrics() { stack_->metrics.Update(stats()); }
bool VisionRuntime::Drain(absl::Time deadline) {
  const bool made = stack_->pipeline->Drain(deadline);
  return stack_->service->AwaitCalls(deadline) && made;
}

}  // namespace tessera::vision
