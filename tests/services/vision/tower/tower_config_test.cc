#include "services/vision/tower/tower_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

namespace tessera::vision {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

base::Json Parse(absl::string_view text) { return base::ParseJson(text).value(); }

std::string Refusal(absl::string_view text) {
  const auto config = ParseTowerConfig(Parse(text));
  EXPECT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(config.status()), "CONFIG_UNSUPPORTED");
  return std::string(config.status().message());
}

TEST(TowerConfig, AnEmptyConfigIsLlavaWithClipLargeAt336) {
  const TowerConfig config = ParseTowerConfig(Parse(R"({"model_type":"llava"})")).value();
  EXPECT_EQ(config.hidden_size, 1024);
  EXPECT_EQ(config.intermediate_size, 4096);
  EXPECT_EQ(config.layers, 24);
  EXPECT_EQ(config.heads, 16);
  EXPECT_EQ(config.patches(), 576);
  EXPECT_EQ(config.rows(), 576);
  EXPECT_EQ(config.width(), 4096);
  EXPECT_THAT(config.feature_layers, ElementsAre(23));
  EXPECT_EQ(config.layers_run(), 23);
  EXPECT_EQ(config.activation, kernels::Activation::kQuickGelu);
  EXPECT_EQ(config.connector.activation, kernels::Activation::kGelu);
  EXPECT_TRUE(config.connector.bias);
}

TEST(TowerConfig, AVisionConfigLeavesOutTheDefaultsOfClipBase) {
  const TowerConfig config =
      ParseTowerConfig(Parse(R"({"model_type":"llava","vision_config":{}})")).value();
  EXPECT_EQ(config.hidden_size, 768);
  EXPECT_EQ(config.layers, 12);
  EXPECT_EQ(config.patch_size, 32);
  EXPECT_EQ(config.image_size, 224);
  EXPECT_FLOAT_EQ(config.layer_norm_epsilon, 1e-5f);
}

TEST(TowerConfig, FeatureLayersMayBeAListAndCountFromEitherEnd) {
  const TowerConfig config =
      ParseTowerConfig(Parse(R"({"model_type":"llava","vision_config":{"hidden_size":24},
                                 "vision_feature_layer":[-1,0,5,-13],
                                 "vision_feature_select_strategy":"full"})"))
          .value();
  EXPECT_THAT(config.feature_layers, ElementsAre(12, 0, 5, 0));
  EXPECT_EQ(config.connector.input_width, 96);
  EXPECT_EQ(config.rows(), config.patches() + 1);
}

TEST(TowerConfig, KeysAreReadNotAssumed) {
  const TowerConfig config =
      ParseTowerConfig(Parse(R"({"model_type":"llava","projector_hidden_act":"relu",
                    "multimodal_projector_bias":false,"text_config":{"hidden_size":128},
                    "vision_config":{"hidden_act":"gelu_pytorch_tanh","layer_norm_eps":1e-6}})"))
          .value();
  EXPECT_EQ(config.activation, kernels::Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(config.layer_norm_epsilon, 1e-6f);
  EXPECT_EQ(config.connector.activation, kernels::Activation::kRelu);
  EXPECT_FALSE(config.connector.bias);
  EXPECT_EQ(config.connector.output_width, 128);
}

TEST(TowerConfig, ARefusalNamesKeyValueAndWhatIsSupported) {
  EXPECT_THAT(Refusal(R"({"model_type":"qwen2_vl"})"),
              AllOf(HasSubstr("model_type"), HasSubstr("qwen2_vl"), HasSubstr("\"llava\"")));
  EXPECT_THAT(Refusal(R"({"model_type":"llava","vision_config":{"model_type":"siglip"}})"),
              AllOf(HasSubstr("vision_config.model_type"), HasSubstr("clip_vision_model")));
  EXPECT_THAT(
      Refusal(R"({"model_type":"llava","vision_config":{"hidden_act":"mish"}})"),
      AllOf(HasSubstr("vision_config.hidden_act"), HasSubstr("mish"), HasSubstr("quick_gelu")));
  EXPECT_THAT(Refusal(R"({"model_type":"llava","projector_hidden_act":7})"),
              HasSubstr("projector_hidden_act = 7"));
  EXPECT_THAT(Refusal(R"({"model_type":"llava","vision_feature_layer":25})"),
              AllOf(HasSubstr("vision_feature_layer = 25"), HasSubstr("-25..24")));
  EXPECT_THAT(Refusal(R"({"model_type":"llava","vision_feature_layer":[]})"),
              HasSubstr("vision_feature_layer = []"));
  EXPECT_THAT(Refusal(R"({"model_type":"llava","vision_feature_layer":[1,"x"]})"),
              HasSubstr("\"x\""));
  EXPECT_THAT(Refusal(R"({"model_type":"llava","vision_feature_select_strategy":"cls"})"),
              AllOf(HasSubstr("\"cls\""), HasSubstr("\"full\"")));
  EXPECT_THAT(Refusal(R"({"model_type":"llava","multimodal_projector_bias":"yes"})"),
              HasSubstr("multimodal_projector_bias"));
}

TEST(TowerConfig, BrokenNumbersAreRefused) {
  for (const char* vision :
       {R"({"hidden_size":0})", R"({"hidden_size":-8})", R"({"hidden_size":1e3})",
        R"({"hidden_size":"768"})", R"({"num_attention_heads":7})", R"({"num_channels":1})",
        R"({"layer_norm_eps":0})", R"({"patch_size":300})", R"({"image_size":[224,224]})",
        R"({"num_hidden_layers":100000})", R"({"hidden_size":9223372036854775807})",
        R"({"hidden_size":18446744073709551615})", R"([])", R"("x")"}) {
    Refusal(absl::StrCat(R"({"model_type":"llava","vision_config":)", vision, "}"));
  }
}

struct Range {
  const char* key;  // of vision_config, or of the whole with a leading "/"
  std::vector<const char*> good, bad;
};

TEST(TowerConfig, EveryNumberHasARangeWithItsEndsAndNothingBeyond) {
  const Range kRanges[] = {
      {"hidden_size", {"12", "1048560"}, {"0", "-768", "1048584", "768.5", "[768]"}},
      {"intermediate_size", {"1", "1048576"}, {"0", "-1", "1048577"}},
      {"num_hidden_layers", {"1", "1000"}, {"0", "-1", "1001"}},
      {"num_attention_heads", {"1", "768"}, {"0", "-12", "7", "769", "1536"}},
      {"num_channels", {"3"}, {"0", "1", "4", "\"3\""}},
      {"image_size", {"32", "2048"}, {"0", "-224", "31", "2049", "16384", "[224, 224]"}},
      {"patch_size", {"1", "224"}, {"0", "-14", "225", "32.0"}},
      {"layer_norm_eps",
       {"1e-12", "1e-5", "1"},
       {"0", "0.0", "-1e-5", "1e-13", "1e-300", "1.5", "\"1e-5\""}},
      {"hidden_act", {"\"gelu\""}, {"\"mish\"", "3"}},
      {"/vision_feature_layer", {"-13", "12", "[0, -1]"}, {"-14", "13", "[]", "[13]", "1.0"}},
      {"/vision_feature_select_strategy", {"\"full\""}, {"\"cls\"", "0"}},
      {"/projector_hidden_act", {"\"relu\""}, {"\"mish\"", "[]"}},
      {"/multimodal_projector_bias", {"true", "false"}, {"0", "\"no\""}},
      {"/text_config",
       {"{}", "{\"hidden_size\":1}"},
       {"[]", "{\"hidden_size\":0}", "{\"hidden_size\":-1}", "{\"hidden_size\":1048577}"}},
  };
  for (const Range& range : kRanges) {
    const bool top = range.key[0] == '/';
    const auto status = [&](const char* value) {
      base::Json config = {{"model_type", "llava"}, {"vision_config", base::Json::object()}};
      (top ? config : config["vision_config"])[range.key + (top ? 1 : 0)] = Parse(value);
      return ParseTowerConfig(config).status();
    };
    for (const char* value : range.good) {
      EXPECT_TRUE(status(value).ok()) << range.key << " " << status(value);
    }
    for (const char* value : range.bad) {
      const absl::Status refused = status(value);
      EXPECT_EQ(base::ReasonOf(refused), "CONFIG_UNSUPPORTED") << range.key << " = " << value;
      EXPECT_FALSE(base::FieldOf(refused).empty()) << refused;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("supported: ")) << value;
    }
  }
}

TEST(TowerConfig, MorePatchesThanATowerTakesAreRefused) {
  EXPECT_THAT(
      Refusal(R"({"model_type":"llava","vision_config":{"image_size":2048,"patch_size":4}})"),
      AllOf(HasSubstr("vision_config.patch_size = 4"), HasSubstr("256 patches a side")));
}

TEST(TowerConfig, CanonicalTextChangesWithEveryValueThatChangesARow) {
  const TowerConfig base = ParseTowerConfig(Parse(R"({"model_type":"llava"})")).value();
  const auto differs = [&base](auto change) {
    TowerConfig other = base;
    change(other);
    return other.Canonical() != base.Canonical();
  };
  EXPECT_TRUE(differs([](TowerConfig& c) { c.feature_layers = {22}; }));
  EXPECT_TRUE(differs([](TowerConfig& c) { c.keep_class_row = true; }));
  EXPECT_TRUE(differs([](TowerConfig& c) { c.layer_norm_epsilon = 1e-6f; }));
  EXPECT_TRUE(differs([](TowerConfig& c) { c.heads = 8; }));
  EXPECT_TRUE(differs([](TowerConfig& c) { c.activation = kernels::Activation::kGelu; }));
  EXPECT_TRUE(
      differs([](TowerConfig& c) { c.connector.activation = kernels::Activation::kGeluTanh; }));
  EXPECT_TRUE(differs([](TowerConfig& c) { c.connector.bias = false; }));
}

}  // namespace
}  // namespace tessera::vision
