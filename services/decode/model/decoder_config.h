#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "kernels/backend.h"
#include "services/decode/model/rope.h"

namespace tessera::decode {

// What config.json and generation_config.json say about the decoder: plain data, immutable once
// loaded. Keys that the files leave out have the defaults of the published Llama classes.
struct DecoderConfig {
  // Reads `model_dir`/config.json and, where there is one, generation_config.json. Every key that
  // changes the computation is read. INVALID_ARGUMENT names file, key, value and what is supported
  // (reasons MODEL_CONFIG_INVALID, MODEL_UNSUPPORTED); NOT_FOUND without config.json.
  static absl::StatusOr<DecoderConfig> Load(const std::string& model_dir);
  // As Load makes it of the parsed files; `generation` may be null.
  static absl::StatusOr<DecoderConfig> Parse(const base::Json& config,
                                             const base::Json& generation);

  std::string family;       // model_type of the whole: "llava"
  std::string text_family;  // model_type of the decoder: "llama"

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float rms_norm_eps = 0;
  kernels::Activation hidden_act = kernels::Activation::kSilu;
  bool attention_bias = false;  // q, k, v and o
  bool mlp_bias = false;        // gate, up and down
  bool tie_word_embeddings = false;
  RopeConfig rope;
  int64_t max_position_embeddings = 0;  // tokens
  std::optional<DType> dtype;           // as declared; each tensor's own dtype is what counts

  int32_t image_token_id = 0;  // may lie beyond vocab_size: its embedding is never read
  std::optional<int32_t> bos_id;
  std::optional<int32_t> pad_id;
  std::vector<int32_t> eos_ids;  // generation stops at any of them

  std::vector<std::string> warnings;  // keys that nobody knows, oddities that were settled

  int64_t q_size() const { return int64_t{heads} * head_dim; }
  int64_t kv_size() const { return int64_t{kv_heads} * head_dim; }
};

// The KV cache that a decoder needs. REQUIRES: dtype is f16, f32 or int8.
kernels::KvCacheSpec SpecFor(const DecoderConfig& config, int64_t blocks, DType dtype);
// Bytes of keys and values of one token in all layers; int8 with a scale and no zero point.
int64_t KvBytesPerToken(const DecoderConfig& config, DType dtype);

}  // namespace tessera::decode
