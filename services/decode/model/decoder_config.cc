#include "services/decode/model/decoder_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/decode/model/config_reader.h"
#include "services/decode/model/known_keys.h"
#include "services/decode/model/rope_config.h"

namespace tessera::decode {
namespace {

using base::Json;
using kernels::Activation;

constexpr char kFamilies[] = "llava with a llama decoder";
constexpr int64_t kMaxSide = int64_t{1} << 20;   // widths
constexpr int64_t kMaxVocab = int64_t{1} << 24;  // rows of the embedding table
constexpr int64_t kMaxId = (int64_t{1} << 31) - 1;
constexpr double kMinEpsilon = 1e-12;  // a row of zeros stays finite
constexpr int kMaxLayers = 4096;
constexpr int kMaxHeads = 4096;
constexpr int kMaxHeadDim = 4096;
constexpr int32_t kDefaultStopId = 2;  // of the published Llama classes

absl::StatusOr<Activation> ReadActivation(ConfigReader& text) {
  static constexpr std::pair<absl::string_view, Activation> kActivations[] = {
      {"silu", Activation::kSilu},          {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},          {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh}, {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu},          {"quick_gelu", Activation::kQuickGelu}};
  const Json* value = text.Find("hidden_act");
  if (value == nullptr) return Activation::kSilu;
  std::string supported;
  for (const auto& [name, activation] : kActivations) {
    if (value->is_string() && value->get_ref<const std::string&>() == name) return activation;
    absl::StrAppend(&supported, supported.empty() ? "" : ", ", name);
  }
  return UnsupportedKey(text.Name("hidden_act"), *value, supported);
}

absl::StatusOr<std::optional<DType>> ReadDType(ConfigReader& reader) {
  for (absl::string_view key : {"dtype", "torch_dtype"}) {
    const Json* value = reader.Find(key);
    if (value == nullptr || *value == "auto") continue;
    const std::string text = value->is_string() ? value->get<std::string>() : "";
    const absl::string_view name = absl::StripPrefix(text, "torch.");
    if (name == "float32" || name == "float") return DType::kF32;
    if (name == "float16" || name == "half") return DType::kF16;
    if (name == "bfloat16") return DType::kBF16;
    return UnsupportedKey(reader.Name(key), *value, "float32, float16, bfloat16");
  }
  return std::nullopt;
}

absl::Status ReadHeads(ConfigReader& text, DecoderConfig& config) {
  ASSIGN_OR_RETURN(config.heads, text.Int("num_attention_heads", 32, 1, kMaxHeads));
  ASSIGN_OR_RETURN(config.kv_heads, text.Int("num_key_value_heads", config.heads, 1, kMaxHeads));
  if (config.heads % config.kv_heads != 0) {
    return InvalidKey(text.Name("num_key_value_heads"),
                      absl::StrCat("is ", config.kv_heads, "; it must divide num_attention_heads ",
                                   config.heads));
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> head_dim,
                   text.OptionalInt("head_dim", 1, kMaxHeadDim));
  if (!head_dim.has_value() && config.hidden_size % config.heads != 0) {
    return InvalidKey(text.Name("num_attention_heads"),
                      absl::StrCat("is ", config.heads, "; without head_dim it must divide ",
                                   "hidden_size ", config.hidden_size));
  }
  const int64_t dim = head_dim.value_or(config.hidden_size / config.heads);
  const int least = config.rope.kind == RopeKind::kDynamic ? 4 : 2;
  if (dim % 2 != 0 || dim < least || dim > kMaxHeadDim) {
    const std::string range = absl::StrCat("it must be even and from ", least, " to ", kMaxHeadDim);
    if (head_dim.has_value()) {
      return InvalidKey(text.Name("head_dim"), absl::StrCat("is ", dim, "; ", range));
    }
    return InvalidKey(text.Name("num_attention_heads"),
                      absl::StrCat("is ", config.heads, ", which makes heads of ", dim,
                                   " from hidden_size ", config.hidden_size, "; ", range));
  }
  config.head_dim = static_cast<int>(dim);
  return absl::OkStatus();
}

absl::Status ReadDecoder(ConfigReader& text, DecoderConfig& config) {
  ASSIGN_OR_RETURN(config.vocab_size, text.Int("vocab_size", 32000, 1, kMaxVocab));
  ASSIGN_OR_RETURN(config.hidden_size, text.Int("hidden_size", 4096, 1, kMaxSide));
  ASSIGN_OR_RETURN(config.intermediate_size, text.Int("intermediate_size", 11008, 1, kMaxSide));
  ASSIGN_OR_RETURN(config.layers, text.Int("num_hidden_layers", 32, 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.rms_norm_eps, text.Number("rms_norm_eps", 1e-6, kMinEpsilon, 1.0));
  ASSIGN_OR_RETURN(config.max_position_embeddings,
                   text.Int("max_position_embeddings", 2048, 1, kMaxId));
  ASSIGN_OR_RETURN(config.hidden_act, ReadActivation(text));
  ASSIGN_OR_RETURN(config.attention_bias, text.Bool("attention_bias", false));
  ASSIGN_OR_RETURN(config.mlp_bias, text.Bool("mlp_bias", false));
  ASSIGN_OR_RETURN(config.rope,
                   ReadRopeConfig(text, config.max_position_embeddings, config.warnings));
  RETURN_IF_ERROR(ReadHeads(text, config));
  ASSIGN_OR_RETURN(config.dtype, ReadDType(text));
  return RefuseOtherSettings(text);
}

absl::Status ReadImageToken(ConfigReader& top, DecoderConfig& config) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> index,
                   top.OptionalInt("image_token_index", 0, kMaxId));
  ASSIGN_OR_RETURN(const std::optional<int64_t> id, top.OptionalInt("image_token_id", 0, kMaxId));
  if (index.has_value() && id.has_value() && *index != *id) {
    return InvalidKey(top.Name("image_token_id"),
                      absl::StrCat("is ", *id, ", but image_token_index is ", *index));
  }
  config.image_token_id = static_cast<int32_t>(id.value_or(index.value_or(32000)));
  return absl::OkStatus();
}

// One optional id: generation_config.json, then the decoder's settings, then the top level. An id
// outside the table (older files write -1) means none.
absl::StatusOr<std::optional<int32_t>> ReadId(absl::Span<ConfigReader* const> readers,
                                              absl::string_view key, int64_t vocab_size) {
  std::optional<int32_t> found;
  for (ConfigReader* reader : readers) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> id, reader->OptionalInt(key, -1, kMaxId));
    if (!found.has_value() && id.has_value() && *id >= 0 && *id < vocab_size) {
      found = static_cast<int32_t>(*id);
    }
  }
  return found;
}

// The first list that names an id counts. Where a file says that there is none, and no other names
// one, every answer would run to its limit.
absl::Status ReadStopIds(absl::Span<ConfigReader* const> readers, DecoderConfig& config) {
  constexpr absl::string_view kKey = "eos_token_id";
  std::string empty;  // name of a list without ids
  for (ConfigReader* reader : readers) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, reader->Ids(kKey, config.vocab_size - 1));
    if (ids.empty() && empty.empty() && reader->Find(kKey) != nullptr) empty = reader->Name(kKey);
    if (config.eos_ids.empty()) config.eos_ids = std::move(ids);
  }
  if (!config.eos_ids.empty()) return absl::OkStatus();
  if (!empty.empty()) {
    return InvalidKey(empty,
                      "is [], and nothing else names an id that ends an answer; supported: "
                      "an id, or a list of 1 to 64 ids");
  }
  if (config.vocab_size <= kDefaultStopId) {
    return InvalidKey(kKey, absl::StrCat("is missing, and its default ", kDefaultStopId,
                                         " lies outside vocab_size ", config.vocab_size));
  }
  config.eos_ids = {kDefaultStopId};
  return absl::OkStatus();
}

absl::Status ReadTokenIds(ConfigReader& top, ConfigReader& text, ConfigReader& generation,
                          DecoderConfig& config) {
  RETURN_IF_ERROR(ReadImageToken(top, config));
  const std::array<ConfigReader*, 3> readers = {&generation, &text, &top};
  ASSIGN_OR_RETURN(config.bos_id, ReadId(readers, "bos_token_id", config.vocab_size));
  ASSIGN_OR_RETURN(config.pad_id, ReadId(readers, "pad_token_id", config.vocab_size));
  RETURN_IF_ERROR(ReadStopIds(readers, config));
  if (!config.bos_id.has_value() && config.vocab_size > 1) config.bos_id = 1;
  return absl::OkStatus();
}

// Whole-file settings beside the decoder's own.
absl::Status ReadTop(ConfigReader& top, ConfigReader& text, DecoderConfig& config) {
  ASSIGN_OR_RETURN(const bool tied, top.Bool("tie_word_embeddings", false));
  ASSIGN_OR_RETURN(const bool text_tied, text.Bool("tie_word_embeddings", false));
  config.tie_word_embeddings = tied || text_tied;
  ASSIGN_OR_RETURN(const std::optional<DType> dtype, ReadDType(top));
  if (dtype.has_value()) config.dtype = dtype;
  top.Find("vocab_size");  // a copy in older files; the decoder's own counts
  return RefuseOtherSettings(top);
}

absl::StatusOr<std::string> ReadFamily(const Json& config, absl::string_view key,
                                       absl::string_view fallback, absl::string_view supported) {
  ConfigReader reader(config, std::string(absl::StripSuffix(key, "model_type")));
  ASSIGN_OR_RETURN(std::string family, reader.String("model_type", fallback));
  if (family != supported) return UnsupportedKey(key, family, kFamilies);
  return family;
}

void WarnOfUnread(ConfigReader& reader, DecoderConfig& config) {
  reader.Ignore(HarmlessKeys());
  for (const std::string& key : reader.UnreadKeys()) {
    config.warnings.push_back(absl::StrCat("config.json: ", key, " is not known and was ignored"));
  }
}

}  // namespace

absl::StatusOr<DecoderConfig> DecoderConfig::Parse(const Json& config, const Json& generation) {
  if (!config.is_object()) return InvalidKey("config.json", "must hold an object");
  DecoderConfig result;
  ASSIGN_OR_RETURN(result.family, ReadFamily(config, "model_type", "", "llava"));
  ConfigReader top(config, "");
  const Json* text_object = top.Find("text_config");
  const Json empty = Json::object();
  if (text_object == nullptr) text_object = &empty;  // all defaults
  if (!text_object->is_object()) return InvalidKey("text_config", "must be an object");
  ASSIGN_OR_RETURN(result.text_family,
                   ReadFamily(*text_object, "text_config.model_type", "llama", "llama"));
  if (!generation.is_null() && !generation.is_object()) {
    return InvalidKey("generation_config.json", "must hold an object");
  }
  ConfigReader text(*text_object, "text_config.");
  ConfigReader generation_reader(generation.is_null() ? empty : generation,
                                 "generation_config.json: ");
  RETURN_IF_ERROR(ReadDecoder(text, result));
  RETURN_IF_ERROR(ReadTop(top, text, result));
  RETURN_IF_ERROR(ReadTokenIds(top, text, generation_reader, result));
  WarnOfUnread(top, result);
  WarnOfUnread(text, result);
  return result;
}

absl::StatusOr<DecoderConfig> DecoderConfig::Load(const std::string& model_dir) {
  const std::string path = absl::StrCat(model_dir, "/config.json");
  ASSIGN_OR_RETURN(const Json config, base::ReadJsonFile(path));
  auto generation = base::ReadJsonFile(absl::StrCat(model_dir, "/generation_config.json"));
  if (!generation.ok() && !absl::IsNotFound(generation.status())) return generation.status();
  auto result = Parse(config, generation.ok() ? *generation : Json());
  if (!result.ok()) return base::Annotate(result.status(), path);
  return result;
}

kernels::KvCacheSpec SpecFor(const DecoderConfig& config, int64_t blocks, DType dtype) {
  CHECK(dtype == DType::kF16 || dtype == DType::kF32 || dtype == DType::kI8);
  kernels::KvCacheSpec spec;
  spec.layers = config.layers;
  spec.kv_heads = config.kv_heads;
  spec.head_dim = config.head_dim;
  spec.blocks = blocks;
  spec.dtype = dtype;
  return spec;
}

int64_t KvBytesPerToken(const DecoderConfig& config, DType dtype) {
  const int64_t values = config.kv_size() * static_cast<int64_t>(SizeOf(dtype));
  const int64_t scales = dtype == DType::kI8 ? 2 * config.kv_heads : 0;
  return 2 * config.layers * (values + scales);
}

}  // namespace tessera::decode
