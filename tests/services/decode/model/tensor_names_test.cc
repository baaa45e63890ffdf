#include "services/decode/model/tensor_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/support/tiny_models.h"

namespace tessera::decode {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TinyModelOptions;

// A model on disk, opened.
struct Model {
  explicit Model(const TinyModelOptions& options) {
    testing::WriteTinyModel(dir.path(), options);
    auto opened = weights::Weights::Open(dir.path());
    EXPECT_TRUE(opened.ok()) << opened.status();
    weights = *std::move(opened);
    auto loaded = DecoderConfig::Load(dir.path());
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    config = *std::move(loaded);
  }
  absl::StatusOr<DecoderTensors> Find() const { return DecoderTensors::Find(*weights, config); }

  testing::TempDir dir;
  std::unique_ptr<weights::Weights> weights;
  DecoderConfig config;
};

std::string MessageOf(const TinyModelOptions& options) {
  const auto found = Model(options).Find();
  EXPECT_EQ(base::ReasonOf(found.status()), "MODEL_WEIGHTS") << found.status();
  return std::string(found.status().message());
}

TEST(TensorNamesTest, BothGenerationsInOneFileOrInShards) {
  for (bool new_names : {false, true}) {
    for (int shards : {1, 3}) {
      for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        const Model model({.dtype = dtype, .shards = shards, .new_names = new_names});
        const auto found = model.Find();
        ASSERT_TRUE(found.ok()) << found.status();
        EXPECT_EQ(found->layers.size(), 2u);
        EXPECT_EQ(found->embedding.view.dtype, dtype);
        EXPECT_EQ(found->head.view.shape, (Shape{96, 32}));
        EXPECT_NE(found->head.view.data, found->embedding.view.data);
        EXPECT_EQ(found->layers[1].down.weight.view.shape, (Shape{32, 48}));
        EXPECT_EQ(found->layers[0].q.bias.view.data, nullptr);
        EXPECT_THAT(found->unused, IsEmpty());
        EXPECT_EQ(found->names.size(), 3u + 2 * 9);
      }
    }
  }
}

TEST(TensorNamesTest, BiasesAreFoundWhereTheConfigHasThem) {
  const Model model({.attention_bias = true, .mlp_bias = true});
  const auto found = model.Find();
  ASSERT_TRUE(found.ok()) << found.status();
  const LayerTensors& layer = found->layers[0];
  EXPECT_EQ(layer.k.bias.view.shape, (Shape{16}));
  EXPECT_EQ(layer.o.bias.view.shape, (Shape{32}));
  EXPECT_EQ(layer.gate.bias.view.shape, (Shape{48}));
  EXPECT_THAT(found->unused, IsEmpty());
}

TEST(TensorNamesTest, ATiedHeadIsTheEmbedding) {
  for (bool new_names : {false, true}) {
    const Model model({.new_names = new_names, .tied = true});
    const auto found = model.Find();
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->tied);
    EXPECT_EQ(found->head.view.data, found->embedding.view.data);
  }
}

TEST(TensorNamesTest, ATiedFileMayHoldOnlyTheHead) {
  TinyModelOptions options = {.tied = true};
  options.omit = {"language_model.model.embed_tokens.weight"};
  options.more_tensors = {{"language_model.lm_head.weight", {96, 32}}};
  const Model model(options);
  const auto found = model.Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->tied);
  EXPECT_EQ(found->embedding.view.data, model.weights->Find("language_model.lm_head.weight")->data);
}

TEST(TensorNamesTest, TiedByTheConfigButDifferentInTheFileStaysApart) {
  TinyModelOptions options = {.tied = true};
  options.more_tensors = {{"language_model.lm_head.weight", {96, 32}}};
  const Model model(options);
  const auto found = model.Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->tied);
  EXPECT_NE(found->head.view.data, found->embedding.view.data);
  EXPECT_THAT(found->warnings, ElementsAre(HasSubstr("tie_word_embeddings")));
}

TEST(TensorNamesTest, AMissingTensorIsNamed) {
  for (const char* name :
       {"language_model.model.embed_tokens.weight", "language_model.lm_head.weight",
        "language_model.model.norm.weight", "language_model.model.layers.1.mlp.up_proj.weight",
        "language_model.model.layers.0.self_attn.v_proj.bias"}) {
    TinyModelOptions options = {.attention_bias = true};
    options.omit = {name};
    const std::string message = MessageOf(options);
    EXPECT_THAT(message, HasSubstr(name));
    EXPECT_THAT(message, HasSubstr("missing"));
  }
  EXPECT_THAT(MessageOf({.config_patch = {{"text_config", {{"num_hidden_layers", 3}}}}}),
              HasSubstr("language_model.model.layers.2.input_layernorm.weight"));
}

TEST(TensorNamesTest, AFileOfAnotherModelIsTold) {
  testing::TempDir dir;
  testing::WriteSafetensors(dir.path() + "/model.safetensors",
                            {{"model.embed_tokens.weight", Tensor(DType::kF32, {4, 4})}});
  const auto weights = weights::Weights::Open(dir.path());
  ASSERT_TRUE(weights.ok());
  const auto found = DecoderTensors::Find(**weights, DecoderConfig());
  EXPECT_THAT(std::string(found.status().message()),
              HasSubstr("model.language_model.embed_tokens.weight"));
}

TEST(TensorNamesTest, AWrongShapeIsNamedWithWhatWasExpected) {
  const std::string message =
      MessageOf({.config_patch = {{"text_config", {{"num_key_value_heads", 4}}}}});
  EXPECT_THAT(message, HasSubstr("language_model.model.layers.0.self_attn.k_proj.weight"));
  EXPECT_THAT(message, HasSubstr("[16, 32]"));
  EXPECT_THAT(message, HasSubstr("expected [32, 32]"));
}

TEST(TensorNamesTest, AnElementTypeThatIsNoFloatIsRefused) {
  testing::TempDir dir;
  testing::WriteSafetensors(
      dir.path() + "/model.safetensors",
      {{"language_model.model.embed_tokens.weight", Tensor(DType::kI8, {100, 64})}});
  const auto weights = weights::Weights::Open(dir.path());
  ASSERT_TRUE(weights.ok());
  DecoderConfig config;
  config.vocab_size = 100;
  config.hidden_size = 64;
  const auto found = DecoderTensors::Find(**weights, config);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("I8"));
}

TEST(TensorNamesTest, UnusedTensorsAreListedButNotTheVisionServicesNorOldBuffers) {
  TinyModelOptions options;
  options.more_tensors = {{"language_model.model.layers.0.self_attn.rotary_emb.inv_freq", {4}},
                          {"language_model.model.layers.0.self_attn.q_proj.bias", {32}},
                          {"adapter.weight", {2, 2}}};
  const auto found = Model(options).Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->unused, ElementsAre(HasSubstr("adapter.weight"),
                                         HasSubstr("layers.0.self_attn.q_proj.bias")));
}

}  // namespace
}  // namespace tessera::decode
