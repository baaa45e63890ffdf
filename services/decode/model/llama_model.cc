#include "services/decode/model/llama_model.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace tessera::decode {

using kernels::DeviceView;
using kernels::MatMulOut;

constexpr size_t kProjections = 7;  // q, k, v, o, gate, up, down

LlamaModel::LlamaModel(const DecoderConfig& config, kernels::Backend& backend, LlamaOptions options)
    : config_(config),
      backend_(backend),
      options_(std::move(options)),
      rope_(config.rope, config.head_dim) {
  outputs_.reserve(static_cast<size_t>(config.layers) * kProjections + 1);
}

absl::StatusOr<std::unique_ptr<LlamaModel>> LlamaModel::Create(const weights::Weights& weights,
                                                               const DecoderConfig& config,
                                                               kernels::Backend& backend,
                                                               LlamaOptions options) {
  ASSIGN_OR_RETURN(DecoderTensors tensors, DecoderTensors::Find(weights, config));
  std::unique_ptr<LlamaModel> model(new LlamaModel(config, backend, std::move(options)));
  ASSIGN_OR_RETURN(model->weights_, LlamaWeights::Load(tensors, backend));
  RETURN_IF_ERROR(weights.CheckUnchanged());
  RETURN_IF_ERROR(model->workspace_.Reserve(model->options_.reserve_tokens,
                                            model->options_.reserve_logits, config, backend));
  model->first_rows_.reserve(static_cast<size_t>(model->options_.reserve_logits));
  model->unused_ = std::move(tensors.unused);
  model->warnings_ = std::move(tensors.warnings);
  return model;
}

absl::Span<const MatMulOut> LlamaModel::Keep(std::initializer_list<MatMulOut> outs) {
  CHECK_LE(outputs_.size() + outs.size(), outputs_.capacity());  // spans must not move
  outputs_.insert(outputs_.end(), outs);
  return absl::MakeConstSpan(outputs_).last(outs.size());
}

void LlamaModel::Tap(int stage, DeviceView hidden) const {
  if (options_.tap) options_.tap(stage, hidden);
}

void LlamaModel::Embed(const BatchPlan& plan, const Workspace::Views& views) {
  backend_.EmbedTokens(weights_.embedding, plan.ids, views.hidden);
  for (const RowRange& range : plan.rows) {
    CHECK_EQ(range.rows.shape.size(), size_t{2});
    CHECK_EQ(range.rows.shape[1], config_.hidden_size);
    backend_.Upload(range.rows, views.hidden.Rows(range.first_token, range.rows.shape[0]));
  }
  Tap(-1, views.hidden);
}

void LlamaModel::Attention(int layer, const BatchPlan& plan, kernels::KvCache& cache,
                           const Workspace::Views& views) {
  const LlamaLayer& weights = weights_.layers[layer];
  const LayerGroup& group = plan.groups[0];
  backend_.RmsNorm(views.hidden, weights.input_norm, config_.rms_norm_eps, views.normed);
  backend_.MatMul(
      {.x = views.normed,
       .outs = Keep({weights.q.To(views.q), weights.k.To(views.k), weights.v.To(views.v)})});
  backend_.RotaryKvWrite({.q = views.q,
                          .k = views.k,
                          .v = views.v,
                          .cos = views.cos,
                          .sin = views.sin,
                          .cache = &cache,
                          .layer = layer,
                          .slots = group.slots});
  backend_.PagedAttention({.q = views.q,
                           .out = views.attended,
                           .cache = &cache,
                           .layer = layer,
                           .heads = config_.heads,
                           .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                           .query_begin = plan.query_begin,
                           .context = group.context,
                           .block_table = group.block_table,
                           .table_width = group.table_width});
}

Workspace::Views LlamaModel::OnlyLogitRows(const BatchPlan& plan, const Workspace::Views& views) {
  const int64_t rows = views.last.rows;
  Workspace::Views only = views;
  only.hidden = views.last;
  only.attended = views.q.Rows(0, rows);  // q is dead behind the attention
  only.normed = views.normed.Rows(0, rows);
  only.gate = views.gate.Rows(0, rows);
  only.up = views.up.Rows(0, rows);
  backend_.CopyRows(views.hidden, plan.logit_tokens, only.hidden, first_rows_);
  backend_.CopyRows(views.attended, plan.logit_tokens, only.attended, first_rows_);
  return only;
}

void LlamaModel::FeedForward(int layer, const Workspace::Views& views) {
  const LlamaLayer& weights = weights_.layers[layer];
  backend_.MatMul(
      {.x = views.attended, .outs = Keep({weights.o.To(views.hidden)}), .add_to_out = true});
  backend_.RmsNorm(views.hidden, weights.post_attention_norm, config_.rms_norm_eps, views.normed);
  backend_.MatMul(
      {.x = views.normed, .outs = Keep({weights.gate.To(views.gate), weights.up.To(views.up)})});
  backend_.GatedActivation(views.gate, views.up, config_.hidden_act, views.gate);
  backend_.MatMul(
      {.x = views.gate, .outs = Keep({weights.down.To(views.hidden)}), .add_to_out = true});
}

void LlamaModel::LastLayer(const BatchPlan& plan, kernels::KvCache& cache,
                           const Workspace::Views& views) {
  const int layer = config_.layers - 1;
  Attention(layer, plan, cache, views);
  if (options_.tap) {  // wants every row
    FeedForward(layer, views);
    Tap(layer, views.hidden);
    if (views.last.rows > 0) OnlyLogitRows(plan, views);
  } else if (views.last.rows > 0) {
    FeedForward(layer, OnlyLogitRows(plan, views));
  }
}

void LlamaModel::Head(const Workspace::Views& views) {
  backend_.RmsNorm(views.last, weights_.final_norm, config_.rms_norm_eps, views.last);
  Tap(config_.layers, views.last);
  backend_.MatMul({.x = views.last, .outs = Keep({{&weights_.head(), nullptr, views.logits}})});
}

absl::StatusOr<StepOutput> LlamaModel::Forward(const BatchPlan& plan, kernels::KvCache& cache) {
  const int64_t tokens = plan.tokens();
  const int64_t logits = static_cast<int64_t>(plan.logit_tokens.size());
  CHECK_GT(tokens, 0);
  CHECK_EQ(plan.groups.size(), size_t{1});
  RETURN_IF_ERROR(workspace_.Reserve(tokens, logits, config_, backend_));
  const Workspace::Views views = workspace_.For(tokens, logits, config_);
  first_rows_.resize(static_cast<size_t>(logits));
  outputs_.clear();
  std::iota(first_rows_.begin(), first_rows_.end(), 0);

  backend_.CopyKvBlocks(cache, plan.groups[0].copies);
  Embed(plan, views);
  rope_.Plan(plan.rotary_length);
  backend_.RotaryAngles({.inverse_frequency = rope_.inverse_frequency(),
                         .frequency_set = rope_.frequency_set(),
                         .positions = {plan.positions[0], plan.positions[1], plan.positions[2]},
                         .sections = {},
                         .cos = views.cos,
                         .sin = views.sin});
  for (int layer = 0; layer < config_.layers - 1; ++layer) {
    Attention(layer, plan, cache, views);
    FeedForward(layer, views);
    Tap(layer, views.hidden);
  }
  LastLayer(plan, cache, views);
  if (logits > 0) Head(views);
  return StepOutput{views.logits};
}

}  // namespace tessera::decode
