#include "tests/support/tiny_models.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/half.h"

namespace tessera::testing {
namespace {

using base::Json;

void StoreFloat(float value, DType dtype, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, &value, sizeof(value));
    return;
  }
  CHECK(dtype == DType::kF16 || dtype == DType::kBF16);
  const uint16_t bits = dtype == DType::kF16 ? base::FloatToHalf(value) : base::FloatToBf16(value);
  std::memcpy(out, &bits, sizeof(bits));
}

// Makes the tensors of a model, one after the other, from one seed.
class TensorMaker {
 public:
  explicit TensorMaker(const TinyModelOptions& options)
      : options_(options), random_(static_cast<uint32_t>(options.seed)) {}

  // Weights around 0 that keep a product's size; norms' weights around 1.
  void Add(const std::string& name, const Shape& shape) {
    if (std::find(options_.omit.begin(), options_.omit.end(), name) != options_.omit.end()) return;
    const bool norm = absl::StrContains(name, "norm") && absl::EndsWith(name, ".weight");
    const double fan_in =
        static_cast<double>(shape.size() > 1 ? NumElements(shape) / shape[0] : 16);
    Tensor tensor(options_.dtype, shape);
    const size_t size = SizeOf(options_.dtype);
    for (int64_t i = 0; i < NumElements(shape); ++i) {
      const double value = Normal() * (norm ? 0.1 : 1.5 / std::sqrt(fan_in)) + (norm ? 1.0 : 0.0);
      StoreFloat(static_cast<float>(value), options_.dtype, tensor.bytes().data() + i * size);
    }
    if (name == options_.nan_tensor) {
      StoreFloat(std::nanf(""), options_.dtype, &tensor.bytes()[tensor.bytes().size() - size]);
    }
    tensors_.push_back({name, std::move(tensor)});
  }
  void AddLinear(const std::string& name, int64_t out, int64_t in, bool bias) {
    Add(absl::StrCat(name, ".weight"), {out, in});
    if (bias) Add(absl::StrCat(name, ".bias"), {out});
  }
  void AddLayerNorm(const std::string& name, int64_t width) {
    Add(absl::StrCat(name, ".weight"), {width});
    Add(absl::StrCat(name, ".bias"), {width});
  }
  std::vector<NamedHostTensor> Take() { return std::move(tensors_); }

 private:
  // Box-Muller on the raw generator: std::normal_distribution differs between libraries.
  double Normal() {
    const double a = (random_() + 1.0) / 4294967297.0;
    const double b = random_() / 4294967296.0;
    return std::sqrt(-2 * std::log(a)) * std::cos(2 * M_PI * b);
  }

  const TinyModelOptions& options_;
  std::mt19937 random_;
  std::vector<NamedHostTensor> tensors_;
};

void AddDecoder(const TinyModelOptions& o, TensorMaker& maker) {
  const std::string prefix = o.new_names ? "model.language_model." : "language_model.model.";
  const int64_t head_dim = o.head_dim.value_or(static_cast<int>(o.hidden / o.heads));
  const int64_t q = o.heads * head_dim, kv = o.kv_heads * head_dim;
  maker.Add(prefix + "embed_tokens.weight", {o.vocab, o.hidden});
  for (int i = 0; i < o.layers; ++i) {
    const std::string layer = absl::StrCat(prefix, "layers.", i, ".");
    maker.Add(layer + "input_layernorm.weight", {o.hidden});
    maker.AddLinear(layer + "self_attn.q_proj", q, o.hidden, o.attention_bias);
    maker.AddLinear(layer + "self_attn.k_proj", kv, o.hidden, o.attention_bias);
    maker.AddLinear(layer + "self_attn.v_proj", kv, o.hidden, o.attention_bias);
    maker.AddLinear(layer + "self_attn.o_proj", o.hidden, q, o.attention_bias);
    maker.Add(layer + "post_attention_layernorm.weight", {o.hidden});
    maker.AddLinear(layer + "mlp.gate_proj", o.intermediate, o.hidden, o.mlp_bias);
    maker.AddLinear(layer + "mlp.up_proj", o.intermediate, o.hidden, o.mlp_bias);
    maker.AddLinear(layer + "mlp.down_proj", o.hidden, o.intermediate, o.mlp_bias);
  }
  maker.Add(prefix + "norm.weight", {o.hidden});
  const std::string head = o.new_names ? "lm_head.weight" : "language_model.lm_head.weight";
  if (!o.tied) maker.Add(head, {o.vocab, o.hidden});
}

void AddVision(const TinyModelOptions& o, TensorMaker& maker) {
  const std::string prefix = o.new_names ? "model.vision_tower." : "vision_tower.vision_model.";
  const int64_t side = o.image_size / o.patch_size, width = o.vision_hidden;
  maker.Add(prefix + "embeddings.class_embedding", {width});
  maker.Add(prefix + "embeddings.patch_embedding.weight",
            {width, 3, int64_t{o.patch_size}, int64_t{o.patch_size}});
  maker.Add(prefix + "embeddings.position_embedding.weight", {side * side + 1, width});
  maker.AddLayerNorm(prefix + "pre_layrnorm", width);
  for (int i = 0; i < o.vision_layers; ++i) {
    const std::string layer = absl::StrCat(prefix, "encoder.layers.", i, ".");
    maker.AddLayerNorm(layer + "layer_norm1", width);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
      maker.AddLinear(absl::StrCat(layer, "self_attn.", name), width, width, true);
    }
    maker.AddLayerNorm(layer + "layer_norm2", width);
    maker.AddLinear(layer + "mlp.fc1", o.vision_intermediate, width, true);
    maker.AddLinear(layer + "mlp.fc2", width, o.vision_intermediate, true);
  }
  maker.AddLayerNorm(prefix + "post_layernorm", width);
  const std::string projector =
      o.new_names ? "model.multi_modal_projector." : "multi_modal_projector.";
  const int64_t features =
      o.vision_feature_layer.is_array() ? static_cast<int64_t>(o.vision_feature_layer.size()) : 1;
  maker.AddLinear(projector + "linear_1", o.hidden, width * features, true);
  maker.AddLinear(projector + "linear_2", o.hidden, o.hidden, true);
}

const char* DTypeText(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
}

Json TextConfig(const TinyModelOptions& o) {
  Json text = {{"model_type", "llama"},
               {"vocab_size", o.vocab},
               {"hidden_size", o.hidden},
               {"intermediate_size", o.intermediate},
               {"num_hidden_layers", o.layers},
               {"num_attention_heads", o.heads},
               {"num_key_value_heads", o.kv_heads},
               {"hidden_act", o.hidden_act},
               {"rms_norm_eps", 1e-5},
               {"max_position_embeddings", o.max_position_embeddings},
               {"attention_bias", o.attention_bias},
               {"mlp_bias", o.mlp_bias},
               {"tie_word_embeddings", o.tied},
               {"bos_token_id", 1},
               {"eos_token_id", 2}};
  if (o.head_dim.has_value()) text["head_dim"] = *o.head_dim;
  if (!o.rope_scaling.is_null()) text["rope_scaling"] = o.rope_scaling;
  if (!o.rope_parameters.is_null()) text["rope_parameters"] = o.rope_parameters;
  return text;
}

Json ModelConfig(const TinyModelOptions& o) {
  const int side = o.image_size / o.patch_size;
  const int class_row = o.vision_feature_select_strategy == "full" ? 1 : 0;
  Json config = {{"architectures", {"LlavaForConditionalGeneration"}},
                 {"model_type", "llava"},
                 {o.new_names ? "dtype" : "torch_dtype", DTypeText(o.dtype)},
                 {"image_token_index", o.image_token_id},
                 {"image_seq_length", side * side + class_row},
                 {"projector_hidden_act", "gelu"},
                 {"vision_feature_layer", o.vision_feature_layer},
                 {"vision_feature_select_strategy", o.vision_feature_select_strategy},
                 {"tie_word_embeddings", o.tied},
                 {"text_config", TextConfig(o)},
                 {"vision_config",
                  {{"model_type", "clip_vision_model"},
                   {"hidden_size", o.vision_hidden},
                   {"intermediate_size", o.vision_intermediate},
                   {"num_hidden_layers", o.vision_layers},
                   {"num_attention_heads", o.vision_heads},
                   {"image_size", o.image_size},
                   {"patch_size", o.patch_size},
                   {"num_channels", 3},
                   {"hidden_act", "quick_gelu"},
                   {"layer_norm_eps", 1e-5},
                   {"projection_dim", o.vision_hidden}}}};
  if (!o.config_patch.is_null()) config.merge_patch(o.config_patch);
  return config;
}

Json PreprocessorConfig(const TinyModelOptions& o) {
  const Json size = {{"height", o.image_size}, {"width", o.image_size}};
  return {{"image_processor_type", "CLIPImageProcessor"},
          {"do_resize", true},
          {"size", {{"shortest_edge", o.image_size}}},
          {"resample", 3},
          {"do_center_crop", true},
          {"crop_size", size},
          {"do_rescale", true},
          {"rescale_factor", 1.0 / 255},
          {"do_normalize", true},
          {"image_mean", {0.48145466, 0.4578275, 0.40821073}},
          {"image_std", {0.26862954, 0.26130258, 0.27577711}},
          {"do_convert_rgb", true}};
}

void WriteWeights(const std::string& dir, int shards, std::vector<NamedHostTensor> tensors) {
  if (shards <= 1) return WriteSafetensors(dir + "/model.safetensors", tensors);
  std::vector<std::vector<NamedHostTensor>> parts(static_cast<size_t>(shards));
  Json map = Json::object();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t part = i % parts.size();
    map[tensors[i].name] =
        absl::StrFormat("model-%05d-of-%05d.safetensors", part + 1, parts.size());
    parts[part].push_back(std::move(tensors[i]));
  }
  for (size_t part = 0; part < parts.size(); ++part) {
    WriteSafetensors(
        absl::StrFormat("%s/model-%05d-of-%05d.safetensors", dir, part + 1, parts.size()),
        parts[part]);
  }
  const Json index = {{"metadata", Json::object()}, {"weight_map", map}};
  WriteText(dir + "/model.safetensors.index.json", index.dump(1));
}

}  // namespace

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  CHECK(!file.fail());
}

void WriteSafetensors(const std::string& path, const std::vector<NamedHostTensor>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const NamedHostTensor& named : tensors) {
    const Tensor& tensor = named.tensor;
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size());
    header[named.name] = {
        {"dtype", std::string(Name(tensor.dtype()))},
        {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
        {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  std::string length;
  for (int i = 0; i < 8; ++i) length.push_back(static_cast<char>(text.size() >> (8 * i)));
  WriteText(path, absl::StrCat(length, text, data));
}

void WriteTinyModel(const std::string& dir, const TinyModelOptions& options) {
  WriteText(dir + "/config.json", ModelConfig(options).dump(1));
  const Json generation = {{"bos_token_id", 1}, {"eos_token_id", 2}};
  WriteText(dir + "/generation_config.json", generation.dump(1));
  WriteText(dir + "/preprocessor_config.json", PreprocessorConfig(options).dump(1));
  TinyModelOptions base = options;
  for (const auto& [name, shape] : options.more_tensors) base.omit.push_back(name);
  TensorMaker maker(base);
  AddDecoder(options, maker);
  AddVision(options, maker);
  base.omit.clear();
  for (const auto& [name, shape] : options.more_tensors) maker.Add(name, shape);
  WriteWeights(dir, options.shards, maker.Take());
}

}  // namespace tessera::testing
