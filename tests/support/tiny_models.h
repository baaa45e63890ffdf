#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/tensor/tensor.h"
#include "tests/support/temp_dir.h"

// Small random LLaVA models in the published layout: config.json, generation_config.json,
// preprocessor_config.json and weights. For combinations that the goldens lack.
namespace tessera::testing {

struct TinyModelOptions {
  uint64_t seed = 1;
  DType dtype = DType::kF32;  // f32, f16 or bf16
  int shards = 1;             // 1: model.safetensors; more: shards and an index
  bool new_names = false;     // model.language_model.* and lm_head, as newer writers have it

  // --- decoder ---
  int64_t vocab = 96;
  int64_t hidden = 32;
  int64_t intermediate = 48;
  int layers = 2;
  int heads = 4;
  int kv_heads = 2;
  std::optional<int> head_dim = std::nullopt;  // left out of the config when absent: hidden / heads
  bool tied = false;                           // then there is no lm_head in the file
  bool attention_bias = false;
  bool mlp_bias = false;
  std::string hidden_act = "silu";
  int64_t max_position_embeddings = 256;
  base::Json rope_scaling = nullptr;  // put into text_config as they are, unless null
  base::Json rope_parameters = nullptr;

  // --- tower and connector ---
  int64_t vision_hidden = 32;
  int64_t vision_intermediate = 48;
  int vision_layers = 3;
  int vision_heads = 2;
  int image_size = 28;
  int patch_size = 14;
  base::Json vision_feature_layer = -2;  // a number or a list
  std::string vision_feature_select_strategy = "default";
  int32_t image_token_id = 95;

  // Merged into the config last (RFC 7396: null removes a key).
  base::Json config_patch = nullptr;
  std::vector<std::string> omit = {};                            // tensors left out of the file
  std::vector<std::pair<std::string, Shape>> more_tensors = {};  // added or replacing
  std::string nan_tensor = {};                                   // its last element is NaN
};

// Writes the model into the existing folder `dir`. Aborts when it cannot.
void WriteTinyModel(const std::string& dir, const TinyModelOptions& options);

struct NamedHostTensor {
  std::string name;
  Tensor tensor;
};
// Writes one .safetensors file.
void WriteSafetensors(const std::string& path, const std::vector<NamedHostTensor>& tensors);
void WriteText(const std::string& path, const std::string& text);

}  // namespace tessera::testing
