#include "services/decode/decode_runtime.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/worker_pool.h"
#include "common/text/tokenizer.h"
#include "common/weights/weights.h"
#include "kernels/create/create.h"
#include "services/decode/decode_metrics.h"
#include "services/decode/decode_service.h"
#include "services/decode/delivery.h"
#include "services/decode/engine/engine.h"
#include "services/decode/model/canary.h"
#include "services/decode/model/decoder_config.h"
#include "services/decode/model/llama_model.h"
#include "services/decode/prompt/prompt_builder.h"
#include "services/decode/template/chat_template.h"

namespace tessera::decode {
namespace {

constexpr int64_t kRequestTokens = 4096;  // of "M requests of 4096"

// What ends an answer: what the configs say, and the tokenizer's own end token.
absl::StatusOr<std::vector<int32_t>> StopIds(const std::string& model_dir,
                                             const DecoderConfig& config,
                                             const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids = config.eos_ids;
  absl::StatusOr<base::Json> json = base::ReadJsonFile(model_dir + "/tokenizer_config.json");
  if (absl::IsNotFound(json.status())) return ids;
  RETURN_IF_ERROR(json.status());
  if (!json->is_object() || !json->contains("eos_token")) return ids;
  const base::Json& token = (*json)["eos_token"];
  const base::Json* text = &token;
  if (token.is_object() && token.contains("content")) text = &token["content"];
  if (!text->is_string()) return ids;
  const std::optional<int32_t> id = tokenizer.IdOf(text->get_ref<const std::string&>());
  if (id.has_value() && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  return ids;
}

PromptOptions PromptOptionsFor(const DecoderConfig& config, const std::vector<int32_t>& stop_ids,
                               const text::Tokenizer& tokenizer) {
  PromptOptions options;
  options.image_token_id = config.image_token_id;
  options.max_tokens = config.max_position_embeddings;
  const auto add = [&](int32_t id) {
    if (id < tokenizer.vocab_size()) options.control_ids.push_back(id);
  };
  for (const int32_t id : stop_ids) add(id);
  if (config.bos_id.has_value()) add(*config.bos_id);
  if (config.pad_id.has_value()) add(*config.pad_id);
  return options;
}

// As --kv_cache_dtype takes it.
absl::string_view KvTypeName(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return "int8";
    case DType::kF16:
      return "f16";
    default:
      return "f32";
  }
}

void LogOnce(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    base::Log(base::LogLevel::kWarning, absl::StrCat("decode: ", warning));
  }
}

// Blocks that `bytes` of KV cache hold.
absl::StatusOr<int32_t> BlocksIn(size_t bytes, const kernels::KvCacheSpec& one_block,
                                 const kernels::Backend& backend) {
  const size_t block_bytes = backend.KvBytesPerBlock(one_block);
  const size_t blocks = bytes / block_bytes;
  if (blocks >= 1) {
    return static_cast<int32_t>(
        std::min<size_t>(blocks, std::numeric_limits<int32_t>::max() / one_block.block_size));
  }
  return base::BadField("kv_cache_bytes", "BAD_OPTION",
                        absl::StrCat("kv_cache_bytes = ", bytes, "; one block of ",
                                     one_block.block_size, " tokens takes ", block_bytes));
}

}  // namespace

// In the order of birth: what comes later uses what comes before.
struct DecodeRuntime::Contents {
  explicit Contents(metrics::Metrics& all) : metrics(all) {}

  DecodeMetrics metrics;
  DecoderConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::optional<PromptBuilder> prompts;
  EngineOptions engine_options;
  EngineDevice device;
  DecodeInfo info;
  weights::CanaryResult canary;
  std::unique_ptr<Delivery> delivery;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<base::WorkerPool> prompt_threads;
  std::unique_ptr<DecodeService> service;

  absl::Status LoadText(const std::string& model_dir);
  absl::Status LoadModel(const DecodeOptions& options, base::ComputePool& pool);
  void AskCanary(const DecodeOptions& options);
  absl::Status MakeCache(const DecodeOptions& options);
  void Describe();
  void Start(const DecodeOptions& options, RecordReader reader, base::Clock& clock);
};

absl::Status DecodeRuntime::Contents::LoadText(const std::string& model_dir) {
  ASSIGN_OR_RETURN(tokenizer, text::Tokenizer::Load(model_dir));
  ASSIGN_OR_RETURN(chat_template, ChatTemplate::Load(model_dir));
  ASSIGN_OR_RETURN(std::vector<int32_t> stop_ids, StopIds(model_dir, config, *tokenizer));
  ASSIGN_OR_RETURN(prompts, PromptBuilder::Create(*tokenizer, &*chat_template,
                                                  PromptOptionsFor(config, stop_ids, *tokenizer)));
  RETURN_IF_ERROR(prompts->CheckPictures());
  engine_options.scheduler.stop_ids = std::move(stop_ids);
  return absl::OkStatus();
}

absl::Status DecodeRuntime::Contents::LoadModel(const DecodeOptions& options,
                                                base::ComputePool& pool) {
  ASSIGN_OR_RETURN(device.backend, kernels::CreateBackend(options.device, pool));
  ASSIGN_OR_RETURN(const auto weights, weights::Weights::Open(options.model_dir));
  info.digest = base::ToHex(weights->Sketch());
  LlamaOptions model_options;
  model_options.reserve_tokens = options.max_batch_tokens;
  model_options.reserve_logits = options.max_sequences;
  auto model = LlamaModel::Create(*weights, config, *device.backend, model_options);
  if (!model.ok()) return base::Annotate(model.status(), options.model_dir);
  LogOnce((*model)->warnings());
  device.model = *std::move(model);
  return absl::OkStatus();
}

// Before the cache is made, which may take all memory that is left.
void DecodeRuntime::Contents::AskCanary(const DecodeOptions& options) {
  const DType compute = absl::StartsWith(options.device, "cuda") ? DType::kF16 : DType::kF32;
  canary = weights::RunCanary(options.model_dir, [&](const weights::Canary& file) {
    kernels::KvCacheSpec spec = SpecFor(config, 1, options.kv_cache_dtype);
    spec.block_size = options.block_size;
    spec.zero_point = options.kv_cache_zero_point;
    return CheckCanary(
        file, {config, *device.model, *device.backend, spec, options.max_batch_tokens}, compute);
  });
}

absl::Status DecodeRuntime::Contents::MakeCache(const DecodeOptions& options) {
  kernels::KvCacheSpec spec = SpecFor(config, 1, options.kv_cache_dtype);
  spec.block_size = options.block_size;
  spec.zero_point = options.kv_cache_zero_point;
  const kernels::KvCacheSpec one_block = spec;
  const size_t budget = options.kv_cache_bytes.BytesOf(device.backend->FreeMemory());
  ASSIGN_OR_RETURN(const int32_t blocks, BlocksIn(budget, one_block, *device.backend));
  spec.blocks = blocks;
  ASSIGN_OR_RETURN(device.cache, device.backend->MakeKvCache(spec));
  engine_options.blocks = blocks;
  engine_options.block_size = options.block_size;
  const size_t kept = options.prefix_cache_bytes / device.backend->KvBytesPerBlock(one_block);
  engine_options.prefix_cache_blocks =
      options.prefix_cache ? static_cast<int32_t>(std::min<size_t>(kept, blocks)) : 0;
  const int64_t tokens = int64_t{blocks} * options.block_size;
  if (tokens < config.max_position_embeddings) {
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("decode: kv_cache_bytes = ", options.kv_cache_bytes.Text(), " holds ",
                           tokens, " tokens, less than the model's context of ",
                           config.max_position_embeddings, ": longer requests are refused"));
  }
  return absl::OkStatus();
}

void DecodeRuntime::Contents::Describe() {
  info.family = config.family;
  info.context_tokens = config.max_position_embeddings;
  info.kv_cache_blocks = engine_options.blocks;
  info.kv_cache_tokens = int64_t{engine_options.blocks} * engine_options.block_size;
  info.kv_cache_requests =
      static_cast<double>(info.kv_cache_tokens) / static_cast<double>(kRequestTokens);
  info.width = config.hidden_size;
  info.device = device.backend->name();
  info.memory = device.backend->memory();
}

void DecodeRuntime::Contents::Start(const DecodeOptions& options, RecordReader reader,
                                    base::Clock& clock) {
  SchedulerOptions& scheduler = engine_options.scheduler;
  scheduler.max_batch_tokens = options.max_batch_tokens;
  scheduler.max_sequences = options.max_sequences;
  scheduler.max_waiting = options.max_waiting;
  scheduler.context_tokens = static_cast<int32_t>(config.max_position_embeddings);
  if (config.rope.kind == RopeKind::kDynamic) {
    engine_options.rotary_shared_tokens = static_cast<int32_t>(config.rope.max_position_embeddings);
  }
  engine_options.max_ahead = options.max_ahead;
  engine_options.slow_client_timeout = options.slow_client_timeout;
  engine_options.vocabulary = static_cast<int32_t>(config.vocab_size);
  engine_options.row_width = config.hidden_size;
  engine_options.observer = metrics.Observer();
  engine_options.fetch = {.threads = options.fetch_threads, .max_bytes = options.fetch_bytes};
  delivery = std::make_unique<Delivery>();
  engine = std::make_unique<Engine>(engine_options, std::move(device), std::move(reader), clock);
  prompt_threads = std::make_unique<base::WorkerPool>(
      options.prompt_threads, static_cast<size_t>(options.max_sequences) + options.max_waiting);

  v1::DecodeServiceGetInfoResponse answer;
  answer.set_family(info.family);
  answer.set_context_tokens(static_cast<uint32_t>(info.context_tokens));
  answer.set_kv_cache_tokens(static_cast<uint64_t>(info.kv_cache_tokens));
  answer.set_width(static_cast<uint32_t>(info.width));
  answer.set_device(info.device);
  answer.set_weight_bytes(info.memory.weights);
  service = std::make_unique<DecodeService>(
      CallDeps{*engine, *prompts, *tokenizer, *prompt_threads, *delivery, clock, info.width,
               options.sink_bytes, options.deadline_cap, options.spans},
      std::move(answer), static_cast<uint32_t>(options.max_waiting), canary.status.ok());
}

absl::StatusOr<std::unique_ptr<DecodeRuntime>> DecodeRuntime::Create(const DecodeOptions& options,
                                                                     base::ComputePool& pool,
                                                                     RecordReader reader,
                                                                     base::Clock& clock,
                                                                     metrics::Metrics& metrics) {
  RETURN_IF_ERROR(options.Validate());
  auto contents = std::make_unique<Contents>(metrics);
  ASSIGN_OR_RETURN(contents->config, DecoderConfig::Load(options.model_dir));
  LogOnce(contents->config.warnings);
  RETURN_IF_ERROR(contents->LoadText(options.model_dir));
  RETURN_IF_ERROR(contents->LoadModel(options, pool));
  contents->AskCanary(options);
  RETURN_IF_ERROR(contents->MakeCache(options));
  contents->Describe();
  contents->metrics.SetMemory(options.device, contents->info.memory);
  contents->metrics.SetCache(
      {options.block_size, contents->info.kv_cache_blocks, KvTypeName(options.kv_cache_dtype)});
  contents->Start(options, std::move(reader), clock);
  return std::unique_ptr<DecodeRuntime>(new DecodeRuntime(std::move(contents)));
}

DecodeRuntime::DecodeRuntime(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
DecodeRuntime::~DecodeRuntime() = default;

grpc::Service* DecodeRuntime::service() { return contents_->service.get(); }
const DecodeInfo& DecodeRuntime::info() const { return contents_->info; }
const weights::CanaryResult& DecodeRuntime::canary() const { return contents_->canary; }
EngineStats DecodeRuntime::stats() const { return contents_->engine->stats(); }
base::Json DecodeRuntime::State() const {
  const EngineStats stats = this->stats();
  return {{"running", stats.running},
          {"waiting", stats.waiting},
          {"outside", stats.outside},
          {"blocks_used", stats.blocks_used},
          {"blocks_cached", stats.blocks_cached},
          {"blocks_total", stats.blocks_total},
          {"steps", stats.steps},
          {"preemptions", stats.preemptions},
          {"prefix_queries", stats.prefix_queries},
          {"prefix_hits", stats.prefix_hits}};
}
EngineProgress DecodeRuntime::progress() const { return contents_->engine->progress(); }
absl::Status DecodeRuntime::health() const { return contents_->engine->health(); }
void DecodeRuntime::UpdateMetrics() { contents_->metrics.Update(stats()); }
bool DecodeRuntime::Drain(absl::Time deadline) {
  const bool made = contents_->engine->Drain(deadline);
  return contents_->service->AwaitCalls(deadline) && made;
}

}  // namespace tessera::decode
