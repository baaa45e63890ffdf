#include "services/decode/model/tensor_names.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/weights/safetensors.h"

namespace tessera::decode {
namespace {

// The generations of published names.
struct Generation {
  absl::string_view decoder;  // before "embed_tokens.weight", "layers.0. ..."
  absl::string_view head;
};
constexpr Generation kGenerations[] = {
    {"language_model.model.", "language_model.lm_head.weight"},
    {"model.language_model.", "lm_head.weight"},
};

struct PartPrefix {
  absl::string_view prefix;
  ModelPart part;
};
constexpr PartPrefix kPartPrefixes[] = {
    {"language_model.", ModelPart::kDecoder},
    {"model.language_model.", ModelPart::kDecoder},
    {"lm_head.", ModelPart::kDecoder},
    {"vision_tower.", ModelPart::kVision},
    {"model.vision_tower.", ModelPart::kVision},
    {"multi_modal_projector.", ModelPart::kConnector},
    {"model.multi_modal_projector.", ModelPart::kConnector},
    {"image_newline", ModelPart::kConnector},
    {"model.image_newline", ModelPart::kConnector},
};

// Buffers that older writers saved: recomputed from the config.
constexpr absl::string_view kHarmlessSuffixes[] = {".rotary_emb.inv_freq"};

absl::Status WeightsError(absl::string_view message) {
  return base::Error(absl::StatusCode::kInvalidArgument, "MODEL_WEIGHTS", message);
}

bool StartsWithAny(const std::vector<std::string>& names, absl::string_view prefix) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return absl::StartsWith(name, prefix); });
}

absl::StatusOr<Generation> Detect(const std::vector<std::string>& names) {
  for (const Generation& generation : kGenerations) {
    if (StartsWithAny(names, generation.decoder)) return generation;
  }
  return WeightsError(absl::StrCat("tensor ", kGenerations[0].decoder,
                                   "embed_tokens.weight is missing (or, in newer files, ",
                                   kGenerations[1].decoder, "embed_tokens.weight)"));
}

bool SameBytes(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Finds tensors one after the other and remembers their names and the first error.
class Finder {
 public:
  Finder(const weights::Weights& weights, DecoderTensors& result)
      : weights_(weights), result_(result) {}

  NamedTensor Find(const std::string& name, const Shape& shape) {
    const TensorView* found = weights_.Find(name);
    if (found == nullptr) {
      Fail(absl::StrCat("tensor ", name, " is missing; expected ", ShapeText(shape)));
    } else if (found->shape != shape) {
      Fail(absl::StrCat("tensor ", name, " has shape ", ShapeText(found->shape), ", expected ",
                        ShapeText(shape), " from config.json"));
    } else if (!IsFloat16Or32(found->dtype)) {
      Fail(absl::StrCat("tensor ", name, " has element type ", Name(found->dtype),
                        "; supported: F32, F16, BF16"));
    }
    result_.names.push_back(name);
    return status_.ok() ? NamedTensor{name, *found} : NamedTensor();
  }

  Projection FindProjection(const std::string& name, int64_t out, int64_t in, bool bias) {
    Projection projection;
    projection.weight = Find(absl::StrCat(name, ".weight"), {out, in});
    if (bias) projection.bias = Find(absl::StrCat(name, ".bias"), {out});
    return projection;
  }

  bool Has(absl::string_view name) const { return weights_.Find(name) != nullptr; }
  const absl::Status& status() const { return status_; }

 private:
  void Fail(absl::string_view message) {
    if (status_.ok()) status_ = WeightsError(message);
  }

  const weights::Weights& weights_;
  DecoderTensors& result_;
  absl::Status status_;
};

LayerTensors FindLayer(Finder& finder, const std::string& prefix, const DecoderConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const bool bias = config.attention_bias;
  const std::string attention = absl::StrCat(prefix, "self_attn.");
  const std::string mlp = absl::StrCat(prefix, "mlp.");
  LayerTensors layer;
  layer.input_norm = finder.Find(absl::StrCat(prefix, "input_layernorm.weight"), {hidden});
  layer.q = finder.FindProjection(absl::StrCat(attention, "q_proj"), config.q_size(), hidden, bias);
  layer.k =
      finder.FindProjection(absl::StrCat(attention, "k_proj"), config.kv_size(), hidden, bias);
  layer.v =
      finder.FindProjection(absl::StrCat(attention, "v_proj"), config.kv_size(), hidden, bias);
  layer.o = finder.FindProjection(absl::StrCat(attention, "o_proj"), hidden, config.q_size(), bias);
  layer.post_attention_norm =
      finder.Find(absl::StrCat(prefix, "post_attention_layernorm.weight"), {hidden});
  layer.gate =
      finder.FindProjection(absl::StrCat(mlp, "gate_proj"), inner, hidden, config.mlp_bias);
  layer.up = finder.FindProjection(absl::StrCat(mlp, "up_proj"), inner, hidden, config.mlp_bias);
  layer.down =
      finder.FindProjection(absl::StrCat(mlp, "down_proj"), hidden, inner, config.mlp_bias);
  return layer;
}

// Embedding and head. A tied file holds one of the two; where it holds both with different values
// the config is wrong about it, and they stay apart.
void FindEnds(Finder& finder, const Generation& generation, const DecoderConfig& config,
              DecoderTensors& result) {
  const Shape shape = {config.vocab_size, config.hidden_size};
  const std::string embedding = absl::StrCat(generation.decoder, "embed_tokens.weight");
  const std::string head(generation.head);
  result.tied = config.tie_word_embeddings;
  if (result.tied && finder.Has(head) != finder.Has(embedding)) {
    result.embedding = finder.Find(finder.Has(head) ? head : embedding, shape);
    result.head = result.embedding;
    return;
  }
  result.embedding = finder.Find(embedding, shape);
  if (result.tied && !finder.Has(head)) return;  // neither is there: the error names the embedding
  result.head = finder.Find(head, shape);
  if (result.tied && finder.status().ok() && !SameBytes(result.embedding.view, result.head.view)) {
    result.tied = false;
    result.warnings.push_back(absl::StrCat("tie_word_embeddings is true, but ", head,
                                           " differs from the embedding: both are used"));
  }
  if (result.tied) result.head = result.embedding;
}

bool IsHarmless(absl::string_view name) {
  return std::any_of(std::begin(kHarmlessSuffixes), std::end(kHarmlessSuffixes),
                     [&](absl::string_view suffix) { return absl::EndsWith(name, suffix); });
}

std::vector<std::string> Unused(const std::vector<std::string>& all,
                                const std::vector<std::string>& used) {
  std::vector<std::string> unused;
  for (const std::string& name : all) {
    const ModelPart part = PartOf(name);
    if (part == ModelPart::kVision || part == ModelPart::kConnector || IsHarmless(name)) continue;
    if (!std::binary_search(used.begin(), used.end(), name)) {
      unused.push_back(weights::Quoted(name));
    }
  }
  return unused;
}

}  // namespace

ModelPart PartOf(absl::string_view tensor_name) {
  for (const PartPrefix& entry : kPartPrefixes) {
    if (absl::StartsWith(tensor_name, entry.prefix)) return entry.part;
  }
  return ModelPart::kOther;
}

absl::StatusOr<DecoderTensors> DecoderTensors::Find(const weights::Weights& weights,
                                                    const DecoderConfig& config) {
  DecoderTensors result;
  const std::vector<std::string> all = weights.names();
  ASSIGN_OR_RETURN(const Generation generation, Detect(all));
  Finder finder(weights, result);
  FindEnds(finder, generation, config, result);
  for (int i = 0; i < config.layers && finder.status().ok(); ++i) {
    result.layers.push_back(
        FindLayer(finder, absl::StrCat(generation.decoder, "layers.", i, "."), config));
  }
  result.final_norm =
      finder.Find(absl::StrCat(generation.decoder, "norm.weight"), {config.hidden_size});
  RETURN_IF_ERROR(finder.status());
  std::sort(result.names.begin(), result.names.end());
  result.unused = Unused(all, result.names);
  return result;
}

}  // namespace tessera::decode
