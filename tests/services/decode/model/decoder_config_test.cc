#include "services/decode/model/decoder_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "tests/support/tiny_models.h"

namespace tessera::decode {
namespace {

using base::Json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A small valid configuration with `patch` merged into it.
Json Config(const char* patch = "{}") {
  Json config = Json::parse(R"({
    "model_type": "llava",
    "text_config": {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
                    "vocab_size": 100}})");
  config.merge_patch(Json::parse(patch));
  return config;
}

absl::StatusOr<DecoderConfig> Parse(const char* patch, const char* generation = "null") {
  return DecoderConfig::Parse(Config(patch), Json::parse(generation));
}

DecoderConfig MustParse(const char* patch, const char* generation = "null") {
  auto config = Parse(patch, generation);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : DecoderConfig();
}

// In text_config.
std::string Text(absl::string_view pairs) {
  return absl::StrCat(R"({"text_config": {)", pairs, "}}");
}

TEST(DecoderConfigTest, WhatIsLeftOutHasThePublishedDefaults) {
  const auto config = DecoderConfig::Parse(Json::parse(R"({"model_type": "llava"})"), Json());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, "llava");
  EXPECT_EQ(config->text_family, "llama");
  EXPECT_EQ(config->vocab_size, 32000);
  EXPECT_EQ(config->hidden_size, 4096);
  EXPECT_EQ(config->intermediate_size, 11008);
  EXPECT_EQ(config->layers, 32);
  EXPECT_EQ(config->heads, 32);
  EXPECT_EQ(config->kv_heads, 32);
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_FLOAT_EQ(config->rms_norm_eps, 1e-6f);
  EXPECT_EQ(config->hidden_act, kernels::Activation::kSilu);
  EXPECT_FALSE(config->attention_bias || config->mlp_bias || config->tie_word_embeddings);
  EXPECT_EQ(config->rope.kind, RopeKind::kDefault);
  EXPECT_EQ(config->rope.theta, 10000.0);
  EXPECT_EQ(config->max_position_embeddings, 2048);
  EXPECT_EQ(config->image_token_id, 32000);
  EXPECT_EQ(config->bos_id, 1);
  EXPECT_EQ(config->pad_id, std::nullopt);
  EXPECT_THAT(config->eos_ids, ElementsAre(2));
  EXPECT_THAT(config->warnings, IsEmpty());
}

TEST(DecoderConfigTest, HeadsMayBeGroupedAndWiderThanTheHiddenSize) {
  const auto config = MustParse(R"({"text_config": {"num_key_value_heads": 2, "head_dim": 64}})");
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.q_size(), 256);
  EXPECT_EQ(config.kv_size(), 128);
  EXPECT_EQ(KvBytesPerToken(config, DType::kF16), 2 * 32 * 128 * 2);
  const auto spec = SpecFor(config, 5, DType::kF32);
  EXPECT_EQ(spec.layers, 32);
  EXPECT_EQ(spec.kv_heads, 2);
  EXPECT_EQ(spec.head_dim, 64);
  EXPECT_EQ(spec.blocks, 5);
  EXPECT_EQ(MustParse(R"({"text_config": {"num_key_value_heads": null}})").kv_heads, 4);
}

TEST(DecoderConfigTest, EveryFormOfRotarySettingsIsRead) {
  EXPECT_EQ(MustParse(R"({"text_config": {"rope_theta": 5000}})").rope.theta, 5000);
  EXPECT_EQ(MustParse(R"({"text_config": {"rope_scaling": null}})").rope.kind, RopeKind::kDefault);
  auto rope =
      MustParse(R"({"text_config": {"rope_scaling": {"type": "linear", "factor": 4}}})").rope;
  EXPECT_EQ(rope.kind, RopeKind::kLinear);
  EXPECT_EQ(rope.factor, 4);
  rope = MustParse(R"({"text_config": {"max_position_embeddings": 512, "rope_theta": 77,
                       "rope_scaling": {"rope_type": "dynamic", "factor": 2.5}}})")
             .rope;
  EXPECT_EQ(rope.kind, RopeKind::kDynamic);
  EXPECT_EQ(rope.factor, 2.5);
  EXPECT_EQ(rope.theta, 77);
  EXPECT_EQ(rope.max_position_embeddings, 512);
  rope = MustParse(R"({"text_config": {"rope_theta": 77, "rope_parameters": {
                       "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                       "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 64}}})")
             .rope;
  EXPECT_EQ(rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(rope.theta, 500000.0);
  EXPECT_EQ(rope.factor, 8);
  EXPECT_EQ(rope.original_max_position_embeddings, 64);
  EXPECT_EQ(MustParse(R"({"text_config": {"rope_parameters": {"rope_theta": 9.0}}})").rope.kind,
            RopeKind::kDefault);
}

TEST(DecoderConfigTest, ActivationsBiasesAndTyingAreRead) {
  using kernels::Activation;
  for (const auto& [name, activation] : {std::pair{"silu", Activation::kSilu},
                                         {"swish", Activation::kSilu},
                                         {"gelu", Activation::kGelu},
                                         {"gelu_new", Activation::kGeluTanh},
                                         {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                         {"relu", Activation::kRelu},
                                         {"quick_gelu", Activation::kQuickGelu}}) {
    const std::string patch = Text(absl::StrCat(R"("hidden_act": ")", name, "\""));
    EXPECT_EQ(MustParse(patch.c_str()).hidden_act, activation) << name;
  }
  EXPECT_TRUE(MustParse(R"({"text_config": {"attention_bias": true}})").attention_bias);
  EXPECT_TRUE(MustParse(R"({"text_config": {"mlp_bias": true}})").mlp_bias);
  EXPECT_TRUE(MustParse(R"({"tie_word_embeddings": true})").tie_word_embeddings);
  EXPECT_TRUE(MustParse(R"({"text_config": {"tie_word_embeddings": true}})").tie_word_embeddings);
  EXPECT_EQ(MustParse(R"({"torch_dtype": "float16"})").dtype, DType::kF16);
  EXPECT_EQ(MustParse(R"({"dtype": "bfloat16"})").dtype, DType::kBF16);
  EXPECT_EQ(MustParse(R"({"text_config": {"torch_dtype": "torch.float32"}})").dtype, DType::kF32);
}

TEST(DecoderConfigTest, StopIdsComeFromTheGenerationConfigFirst) {
  EXPECT_THAT(MustParse("{}", R"({"eos_token_id": 7})").eos_ids, ElementsAre(7));
  EXPECT_THAT(MustParse("{}", R"({"eos_token_id": [7, 9]})").eos_ids, ElementsAre(7, 9));
  EXPECT_THAT(MustParse(R"({"text_config": {"eos_token_id": [5, 6]}})", "{}").eos_ids,
              ElementsAre(5, 6));
  EXPECT_THAT(MustParse(R"({"eos_token_id": 4})").eos_ids, ElementsAre(4));
  const auto config = MustParse(R"({"image_token_id": 50, "pad_token_id": -1})",
                                R"({"bos_token_id": 3, "pad_token_id": 8})");
  EXPECT_EQ(config.bos_id, 3);
  EXPECT_EQ(config.pad_id, 8);
  EXPECT_EQ(config.image_token_id, 50);
}

TEST(DecoderConfigTest, UnknownKeysAreListedAndKnownHarmlessOnesAreNot) {
  const auto config = MustParse(R"({"brand_new": 1, "ignore_index": -100,
      "text_config": {"attention_dropout": 0.5, "use_cache": false, "novel_norm": true,
                      "rope_scaling": {"type": "linear", "factor": 2, "twist": 1}}})");
  EXPECT_THAT(config.warnings,
              ElementsAre(HasSubstr("text_config.rope_scaling.twist"), HasSubstr("brand_new"),
                          HasSubstr("text_config.novel_norm")));
}

struct Refusal {
  const char* patch;
  const char* field;
  const char* says;
};

TEST(DecoderConfigTest, WhatIsNotSupportedIsRefusedWithKeyValueAndWhatIs) {
  const Refusal kRefusals[] = {
      {R"({"model_type": "qwen2_vl"})", "model_type", "\"qwen2_vl\""},
      {R"({"model_type": null})", "model_type", "supported: llava"},
      {R"({"text_config": {"model_type": "mistral"}})", "text_config.model_type", "\"mistral\""},
      {R"({"text_config": {"sliding_window": 4096}})", "text_config.sliding_window", "4096"},
      {R"({"text_config": {"hidden_act": "mish"}})", "text_config.hidden_act", "quick_gelu"},
      {R"({"text_config": {"hidden_act": 3}})", "text_config.hidden_act", "3"},
      {R"({"text_config": {"pretraining_tp": 2}})", "text_config.pretraining_tp", "supported: 1"},
      {R"({"quantization_config": {"bits": 4}})", "quantization_config", "bits"},
      {R"({"text_config": {"quantization_config": {}}})", "text_config.quantization_config", "{}"},
      {R"({"text_config": {"add_cross_attention": true}})", "text_config.add_cross_attention",
       "supported: false"},
      {R"({"text_config": {"partial_rotary_factor": 0.5}})", "text_config.partial_rotary_factor",
       "0.5"},
      {R"({"text_config": {"rope_parameters": {"partial_rotary_factor": 0.5}}})",
       "text_config.rope_parameters.partial_rotary_factor", "0.5"},
      {R"({"text_config": {"rope_scaling": {"type": "yarn", "factor": 2}}})",
       "text_config.rope_scaling.type", "default, linear, dynamic, llama3"},
      {R"({"text_config": {"rope_scaling": {"rope_type": 5}}})",
       "text_config.rope_scaling.rope_type", "5"},
      {R"({"text_config": {"rope_scaling": "linear"}})", "text_config.rope_scaling", "an object"},
      {R"({"torch_dtype": "float64"})", "torch_dtype", "float32, float16, bfloat16"},
  };
  for (const Refusal& refusal : kRefusals) {
    const absl::Status status = Parse(refusal.patch).status();
    EXPECT_EQ(base::ReasonOf(status), "MODEL_UNSUPPORTED") << refusal.patch << " " << status;
    EXPECT_EQ(base::FieldOf(status), refusal.field) << refusal.patch;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.says)) << refusal.patch;
    EXPECT_THAT(std::string(status.message()), HasSubstr("supported: ")) << refusal.patch;
  }
}

TEST(DecoderConfigTest, ValuesThatMakeNoSenseAreRefusedWithKeyAndValue) {
  const Refusal kRefusals[] = {
      {R"({"text_config": []})", "text_config", "object"},
      {R"({"text_config": {"hidden_size": 64.0}})", "text_config.hidden_size", "64.0"},
      {R"({"text_config": {"hidden_size": -64}})", "text_config.hidden_size", "-64"},
      {R"({"text_config": {"hidden_size": "64"}})", "text_config.hidden_size", "\"64\""},
      {R"({"text_config": {"hidden_size": 18446744073709551615}})", "text_config.hidden_size",
       "18446744073709551615"},
      {R"({"text_config": {"num_hidden_layers": 0}})", "text_config.num_hidden_layers", "0"},
      {R"({"text_config": {"num_hidden_layers": 2000000000}})", "text_config.num_hidden_layers",
       "2000000000"},
      {R"({"text_config": {"num_key_value_heads": 3}})", "text_config.num_key_value_heads", "3"},
      {R"({"text_config": {"num_attention_heads": 5}})", "text_config.num_attention_heads", "5"},
      {R"({"text_config": {"head_dim": 15}})", "text_config.head_dim", "15"},
      {R"({"text_config": {"rms_norm_eps": -1}})", "text_config.rms_norm_eps", "-1"},
      {R"({"text_config": {"attention_bias": 1}})", "text_config.attention_bias", "1"},
      {R"({"text_config": {"rope_theta": 0}})", "text_config.rope_theta", "0"},
      {R"({"text_config": {"rope_scaling": {"type": "linear"}}})",
       "text_config.rope_scaling.factor", "missing"},
      {R"({"text_config": {"rope_scaling": {"type": "linear", "factor": 0}}})",
       "text_config.rope_scaling.factor", "0"},
      {R"({"text_config": {"rope_scaling": {"type": "llama3", "factor": 8}}})",
       "text_config.rope_scaling.low_freq_factor", "missing"},
      {R"({"text_config": {"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4,
                                            "high_freq_factor": 4}}})",
       "text_config.rope_scaling.high_freq_factor", "above"},
      {R"({"image_token_index": -1})", "image_token_index", "-1"},
      {R"({"image_token_index": 5, "image_token_id": 6})", "image_token_id", "6"},
      {R"({"eos_token_id": [2, 100]})", "eos_token_id", "100"},
      {R"({"eos_token_id": "</s>"})", "eos_token_id", "</s>"},
  };
  for (const Refusal& refusal : kRefusals) {
    const absl::Status status = Parse(refusal.patch).status();
    EXPECT_EQ(base::ReasonOf(status), "MODEL_CONFIG_INVALID") << refusal.patch << " " << status;
    EXPECT_EQ(base::FieldOf(status), refusal.field) << refusal.patch;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.says)) << refusal.patch;
  }
  EXPECT_FALSE(Parse("{}", R"({"eos_token_id": 1000})").ok());
  EXPECT_FALSE(Parse("{}", "[]").ok());
  EXPECT_FALSE(DecoderConfig::Parse(Json::array(), Json()).ok());
}

struct Range {
  const char* key;  // of text_config
  std::vector<const char*> good, bad;
};

TEST(DecoderConfigTest, EveryNumberHasARangeWithItsEndsAndNothingBeyond) {
  const Range kRanges[] = {
      {"vocab_size", {"3", "16777216"}, {"0", "-1", "16777217", "1e3", "true"}},
      {"hidden_size", {"8", "16384"}, {"0", "-64", "66", "1048580", "[]"}},
      {"intermediate_size", {"1", "1048576"}, {"0", "-1", "1048577"}},
      {"num_hidden_layers", {"1", "4096"}, {"0", "-1", "4097", "2.5"}},
      {"num_attention_heads", {"1", "32"}, {"0", "-4", "3", "4097", "64"}},
      {"num_key_value_heads", {"1", "4"}, {"0", "-1", "3", "8", "4097"}},
      {"head_dim", {"2", "4096"}, {"0", "-2", "3", "4098"}},
      {"rms_norm_eps",
       {"1e-12", "1e-5", "1"},
       {"0", "0.0", "-1e-6", "1e-13", "1.5", "1e308", "\"1e-5\""}},
      {"rope_theta", {"1", "1e4", "1e12"}, {"0", "-10000", "0.5", "1e13"}},
      {"max_position_embeddings", {"1", "2147483647"}, {"0", "-1", "2147483648"}},
      {"original_max_position_embeddings", {"1", "2147483648"}, {"0", "-1", "2147483649"}},
      {"attention_bias", {"true", "false"}, {"0", "1", "\"true\""}},
      {"mlp_bias", {"true", "false"}, {"0", "\"no\""}},
      {"tie_word_embeddings", {"true", "false"}, {"0", "\"no\""}},
      {"bos_token_id", {"-1", "0", "99"}, {"-2", "2147483648", "\"<s>\""}},
      {"pad_token_id", {"-1", "0", "99"}, {"-2", "2147483648", "[0]"}},
      {"eos_token_id", {"0", "[99, 3]"}, {"-1", "100", "[]", "[2, -1]", "[[2]]", "2.0"}},
      {"partial_rotary_factor", {"1", "1.0"}, {"0", "0.5", "\"1\""}},
      {"use_sliding_window", {"true", "false"}, {"0"}},
  };
  for (const Range& range : kRanges) {
    const auto status = [&range](const char* value) {
      return Parse(Text(absl::StrCat("\"", range.key, "\": ", value)).c_str()).status();
    };
    for (const char* value : range.good) EXPECT_TRUE(status(value).ok()) << status(value);
    for (const char* value : range.bad) {
      const absl::Status refused = status(value);
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << range.key << " = " << value;
      EXPECT_THAT(std::string(refused.message()), HasSubstr(range.key)) << value;
      EXPECT_FALSE(base::FieldOf(refused).empty()) << refused;
    }
  }
}

TEST(DecoderConfigTest, EveryNumberOfRotaryScalingHasARange) {
  const Range kRanges[] = {
      {"factor", {"1", "1e6"}, {"0", "-1", "0.5", "1e7", "null"}},
      {"low_freq_factor", {"1e-6", "3.9"}, {"0", "-1", "4", "1e7", "null"}},
      {"high_freq_factor", {"1.1", "1e6"}, {"0", "-1", "1", "1e7", "null"}},
      {"original_max_position_embeddings", {"1", "2147483648"}, {"0", "-1", "2147483649", "1.5"}},
      {"rope_theta", {"1", "1e12"}, {"0", "-1", "1e13"}},
      {"rope_type", {"\"default\"", "\"linear\""}, {"\"yarn\"", "7"}},
  };
  for (const Range& range : kRanges) {
    const auto status = [&range](const char* value) {
      Json scaling = {
          {"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
      scaling[range.key] = Json::parse(value);
      Json config = Config();
      config["text_config"]["rope_scaling"] = scaling;
      return DecoderConfig::Parse(config, Json()).status();
    };
    for (const char* value : range.good) EXPECT_TRUE(status(value).ok()) << status(value);
    for (const char* value : range.bad) {
      EXPECT_TRUE(absl::IsInvalidArgument(status(value))) << range.key << " = " << value;
      EXPECT_THAT(std::string(status(value).message()), HasSubstr("rope_scaling.")) << value;
    }
  }
}

TEST(DecoderConfigTest, AnAnswerMustHaveAWayToEnd) {
  const absl::Status none = Parse("{}", R"({"eos_token_id": []})").status();
  EXPECT_EQ(base::ReasonOf(none), "MODEL_CONFIG_INVALID");
  EXPECT_THAT(std::string(none.message()),
              ::testing::AllOf(HasSubstr("generation_config.json: eos_token_id is []"),
                               HasSubstr("supported: an id")));
  EXPECT_THAT(
      MustParse(R"({"text_config": {"eos_token_id": 7}})", R"({"eos_token_id": []})").eos_ids,
      ElementsAre(7));
  EXPECT_FALSE(Parse(R"({"text_config": {"vocab_size": 2}})").ok());
  Json many = {{"eos_token_id", std::vector<int>(65, 3)}};
  EXPECT_THAT(std::string(DecoderConfig::Parse(Config(), many).status().message()),
              HasSubstr("lists 65 ids"));
}

// Every key with every odd value: a config or a typed error, and never numbers that others trip on.
TEST(DecoderConfigTest, OddValuesOfAnyKeyNeverBreakIt) {
  testing::TempDir dir;
  const base::Json rope = {{"type", "llama3"},
                           {"factor", 8},
                           {"low_freq_factor", 1},
                           {"high_freq_factor", 4},
                           {"original_max_position_embeddings", 64}};
  testing::WriteTinyModel(dir.path(), {.head_dim = 8, .rope_scaling = rope});
  const auto config = base::ReadJsonFile(dir.path() + "/config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  const Json odd = Json::parse(R"([null, true, -1, 0, 1, 3, 1.5, 1e308, -1e308, 2147483648,
      9223372036854775807, 18446744073709551615, "", "silu", "\u0000\u00e9", [], [1, "x"], {},
      {"a": {"b": [1]}}])");
  const Json flat = config->flatten();
  int refused = 0;
  for (const auto& [pointer, old] : flat.items()) {
    for (const Json& value : odd) {
      Json changed = *config;
      changed[Json::json_pointer(pointer)] = value;
      const auto parsed = DecoderConfig::Parse(changed, changed);
      if (!parsed.ok()) {
        EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << pointer << " " << value;
        EXPECT_FALSE(base::FieldOf(parsed.status()).empty()) << pointer << " " << value;
        ++refused;
        continue;
      }
      EXPECT_EQ(parsed->head_dim % 2, 0);
      EXPECT_EQ(parsed->heads % parsed->kv_heads, 0);
      EXPECT_GT(parsed->vocab_size, 0);
      const Rope usable(parsed->rope, parsed->head_dim);
      for (float frequency : usable.inverse_frequency()) EXPECT_GE(frequency, 0.0f);
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(DecoderConfigTest, FilesAreReadAndErrorsNameThem) {
  testing::TempDir dir;
  EXPECT_TRUE(absl::IsNotFound(DecoderConfig::Load(dir.path()).status()));
  testing::WriteTinyModel(dir.path(), {.vocab = 96});
  const auto config = DecoderConfig::Load(dir.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocab_size, 96);
  EXPECT_THAT(config->warnings, IsEmpty());
  testing::WriteText(dir.path() + "/generation_config.json", "{");
  EXPECT_THAT(std::string(DecoderConfig::Load(dir.path()).status().message()),
              HasSubstr("generation_config.json"));
  testing::WriteText(dir.path() + "/config.json", R"({"model_type": "clip"})");
  testing::WriteText(dir.path() + "/generation_config.json", "{}");
  EXPECT_THAT(std::string(DecoderConfig::Load(dir.path()).status().message()),
              HasSubstr(dir.path()));
}

}  // namespace
}  // namespace tessera::decode
