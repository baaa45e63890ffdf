#include "services/decode/model/known_keys.h"

#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

using base::Json;

// Keys that change nothing in what one pass of the decoder computes: names, training, the defaults
// of sampling, and what other readers of the file own.
constexpr absl::string_view kHarmlessKeys[] = {
    // names and versions
    "_name_or_path", "_commit_hash", "architectures", "transformers_version", "model_type",
    "tokenizer_class", "auto_map", "name_or_path",
    // training and outputs of other kinds
    "initializer_range", "attention_dropout", "use_cache", "output_attentions",
    "output_hidden_states", "return_dict", "problem_type", "id2label", "label2id", "num_labels",
    "finetuning_task", "task_specific_params", "torchscript", "tf_legacy_loss", "use_bfloat16",
    "chunk_size_feed_forward", "gradient_checkpointing", "ignore_index", "_attn_implementation",
    "_attn_implementation_autoset", "attn_implementation",
    // defaults of sampling and beam search in older files
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens", "cross_attention_hidden_size", "prefix",
    "sep_token_id", "decoder_start_token_id",
    // read by the vision service
    "vision_config", "projector_hidden_act", "multimodal_projector_bias", "vision_feature_layer",
    "vision_feature_select_strategy", "image_seq_length"};

// Settings of other decoders: harmless at the value that turns them off.
struct OffValue {
  absl::string_view key;
  const char* off;  // JSON
};
constexpr OffValue kMustBeOff[] = {
    {"quantization_config", "null"}, {"compression_config", "null"},
    {"pretraining_tp", "1"},         {"add_cross_attention", "false"},
    {"is_encoder_decoder", "false"}, {"tie_encoder_decoder", "false"},
    {"pruned_heads", "{}"},          {"layer_types", "null"},
    {"num_local_experts", "null"},   {"attn_logit_softcapping", "null"},
    {"logit_scale", "null"},         {"final_logit_softcapping", "null"}};

}  // namespace

absl::Span<const absl::string_view> HarmlessKeys() { return kHarmlessKeys; }

absl::Status RefuseOtherSettings(ConfigReader& reader) {
  for (const OffValue& setting : kMustBeOff) {
    const Json* value = reader.Find(setting.key);
    if (value == nullptr || *value == Json::parse(setting.off)) continue;
    return UnsupportedKey(reader.Name(setting.key), *value, setting.off);
  }
  // A window that is switched off may still be written down.
  ASSIGN_OR_RETURN(const bool window_used, reader.Bool("use_sliding_window", true));
  const Json* window = reader.Find("sliding_window");
  if (window != nullptr && window_used) {
    return UnsupportedKey(reader.Name("sliding_window"), *window, "null");
  }
  return absl::OkStatus();
}

}  // namespace tessera::decode
