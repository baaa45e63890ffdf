#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/weights.h"
#include "kernels/backend.h"
#include "services/decode/model/decoder_config.h"
#include "services/decode/model/llama_weights.h"
#include "services/decode/model/rope.h"
#include "services/decode/model/step_model.h"
#include "services/decode/model/workspace.h"

namespace tessera::decode {

struct LlamaOptions {
  // Workspace made at creation; a larger plan makes it grow, a warm step allocates nothing.
  int64_t reserve_tokens = 0;
  int64_t reserve_logits = 0;
  // For tests: sees hidden states [tokens, hidden] as they are enqueued, -1: embeddings with the
  // pictures' rows, i: after layer i, layers: the rows of logit_tokens after the final norm. May
  // enqueue a Download.
  std::function<void(int stage, kernels::DeviceView hidden)> tap = nullptr;
};

// The Llama decoder (arXiv 2307.09288): RMS norm, rotary positions, grouped queries, gated MLP.
// Owns its weights and workspace on the backend. Engine thread only.
class LlamaModel final : public StepModel {
 public:
  // `weights` is read now and may be dropped then; `backend` outlives the model. INVALID_ARGUMENT
  // names the tensor that is missing or wrong; FAILED_PRECONDITION when a file changed meanwhile.
  static absl::StatusOr<std::unique_ptr<LlamaModel>> Create(const weights::Weights& weights,
                                                            const DecoderConfig& config,
                                                            kernels::Backend& backend,
                                                            LlamaOptions options = {});

  absl::StatusOr<StepOutput> Forward(const BatchPlan& plan, kernels::KvCache& cache) override;

  const DecoderConfig& config() const { return config_; }
  // Tensors of the file that nobody uses, and oddities found in it: to be logged once.
  const std::vector<std::string>& unused_tensors() const { return unused_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  LlamaModel(const DecoderConfig& config, kernels::Backend& backend, LlamaOptions options);

  void Embed(const BatchPlan& plan, const Workspace::Views& views);
  // Writes keys and values; the result waits in views.attended.
  void Attention(int layer, const BatchPlan& plan, kernels::KvCache& cache,
                 const Workspace::Views& views);
  // The rest of the layer: output projection and MLP, both added to views.hidden.
  void FeedForward(int layer, const Workspace::Views& views);
  // Behind its keys and values only rows whose logits are wanted go on, into views.last.
  void LastLayer(const BatchPlan& plan, kernels::KvCache& cache, const Workspace::Views& views);
  Workspace::Views OnlyLogitRows(const BatchPlan& plan, const Workspace::Views& views);
  void Head(const Workspace::Views& views);
  absl::Span<const kernels::MatMulOut> Keep(std::initializer_list<kernels::MatMulOut> outs);
  void Tap(int stage, kernels::DeviceView hidden) const;

  const DecoderConfig config_;
  kernels::Backend& backend_;
  const LlamaOptions options_;
  LlamaWeights weights_;
  Workspace workspace_;
  Rope rope_;
  std::vector<int32_t> first_rows_;          // 0, 1, 2, ...: where CopyRows puts the logits' rows
  std::vector<kernels::MatMulOut> outputs_;  // of this step: ops read them until they are done
  std::vector<std::string> unused_;
  std::vector<std::string> warnings_;
};

}  // namespace tessera::decode
