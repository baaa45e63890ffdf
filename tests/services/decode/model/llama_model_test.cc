#include "services/decode/model/llama_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "common/base/compute_pool.h"
#include "common/base/error.h"
#include "kernels/create/create.h"
#include "tests/services/decode/model/paged_runner.h"
#include "tests/services/decode/model/variants.h"
#include "tests/support/tiny_models.h"

namespace tessera::decode {
namespace {

using testing::PagedRunner;
using testing::SameBits;
using testing::Script;
using testing::TempDir;
using testing::TinyModelOptions;
using testing::Variant;

// A script of plain tokens.
Script TextScript(std::vector<int32_t> ids, int64_t prompt) {
  Script script;
  script.ids = std::move(ids);
  script.prompt = prompt;
  script.positions.resize(script.ids.size());
  std::iota(script.positions.begin(), script.positions.end(), 0);
  return script;
}

class LlamaModelTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LlamaModelTest, EveryVariantComputesWhatThePublishedClassesDo) {
  const std::vector<int32_t> ids = testing::VariantIds();
  const Script script = TextScript(ids, testing::kVariantPrompt);
  for (const Variant& variant : testing::Variants()) {
    TempDir dir;
    testing::WriteTinyModel(dir.path(), variant.options);
    PagedRunner runner(dir.path(), {.device = GetParam()});
    EXPECT_TRUE(runner.model().unused_tensors().empty()) << variant.name;
    const std::vector<float> logits = runner.Run({script}, testing::Alone(script))[0];
    const float* prompt = &logits[(testing::kVariantPrompt - 1) * variant.options.vocab];
    const float* forced = &logits[(ids.size() - 1) * variant.options.vocab];
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(prompt[i], variant.after_prompt[i], 1e-4) << variant.name;
      EXPECT_NEAR(forced[i], variant.after_forced[i], 1e-4) << variant.name;
    }
  }
}

// Dynamic scaling gives each token the frequencies of its own length: a prompt that comes in chunks
// must not see the lengths of the chunks.
TEST_P(LlamaModelTest, VariantsAreEqualToTheBitInChunksAndInABatch) {
  const std::vector<int32_t> ids = testing::VariantIds();
  for (const Variant& variant : testing::Variants()) {
    TempDir dir;
    testing::WriteTinyModel(dir.path(), variant.options);
    const std::vector<Script> scripts = {TextScript(ids, testing::kVariantPrompt),
                                         TextScript({ids.begin() + 5, ids.begin() + 25}, 12),
                                         TextScript({ids.begin(), ids.begin() + 7}, 6)};
    PagedRunner runner(dir.path(), {.device = GetParam(), .threads = 2});
    std::vector<std::vector<float>> alone;
    for (const Script& script : scripts) {
      alone.push_back(runner.Run({script}, testing::Alone(script))[0]);
    }
    const auto mixed = runner.Run(scripts, testing::Mixed(scripts));
    for (size_t i = 0; i < scripts.size(); ++i) {
      EXPECT_TRUE(SameBits(alone[i], mixed[i])) << variant.name << " " << i;
    }
    const auto chunked = runner.Run({scripts[0]}, testing::InChunks(scripts[0], 3))[0];
    EXPECT_TRUE(SameBits(alone[0], chunked)) << variant.name;
  }
}

TEST_P(LlamaModelTest, TheWorkspaceGrowsWithThePlanAndIsKept) {
  TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  PagedRunner runner(dir.path(), {.device = GetParam()});
  const Script small = TextScript({1, 5, 9}, 3);
  std::vector<int32_t> ids(60);
  std::iota(ids.begin(), ids.end(), 1);
  const Script large = TextScript(ids, 60);
  const auto first = runner.Run({small}, testing::Alone(small))[0];
  const size_t before = runner.backend().memory().buffers;
  runner.Run({large}, testing::Alone(large));
  const size_t grown = runner.backend().memory().buffers;
  EXPECT_GT(grown, before);
  EXPECT_TRUE(SameBits(first, runner.Run({small}, testing::Alone(small))[0]));
  EXPECT_EQ(runner.backend().memory().buffers, grown);
}

TEST_P(LlamaModelTest, AReservedWorkspaceDoesNotGrow) {
  TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  PagedRunner runner(dir.path(),
                     {.device = GetParam(), .llama = {.reserve_tokens = 60, .reserve_logits = 60}});
  const size_t before = runner.backend().memory().buffers;
  std::vector<int32_t> ids(60);
  std::iota(ids.begin(), ids.end(), 1);
  const Script script = TextScript(ids, 60);
  runner.Run({script}, testing::Alone(script));
  EXPECT_EQ(runner.backend().memory().buffers, before);
}

TEST_P(LlamaModelTest, OnlyTheLogitsAskedForAreComputed) {
  TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  PagedRunner runner(dir.path(), {.device = GetParam()});
  const Script script = TextScript({1, 5, 9, 13, 17, 21}, 6);
  const auto all = runner.Run({script}, testing::Alone(script))[0];

  BatchPlan plan;
  plan.Clear();
  for (int32_t i = 0; i < 6; ++i) {
    plan.ids.push_back(script.ids[i]);
    for (auto& axis : plan.positions) axis.push_back(i);
    plan.rotary_length.push_back(6);
    plan.groups[0].slots.push_back(i);
  }
  plan.query_begin.push_back(6);
  plan.adapter.push_back(0);
  plan.groups[0].context = {6};
  plan.groups[0].block_table = {0};
  plan.groups[0].table_width = 1;
  plan.logit_tokens = {1, 4};
  auto output = runner.model().Forward(plan, runner.cache());
  ASSERT_TRUE(output.ok()) << output.status();
  ASSERT_EQ(output->logits.rows, 2);
  std::vector<float> host(2 * 96);
  runner.backend().Download(output->logits, absl::MakeSpan(host));
  ASSERT_TRUE(runner.backend().Synchronize().ok());
  const auto some = absl::MakeConstSpan(host), every = absl::MakeConstSpan(all);
  EXPECT_TRUE(SameBits(some.first(96), every.subspan(96, 96)));
  EXPECT_TRUE(SameBits(some.last(96), every.subspan(384, 96)));

  plan.logit_tokens.clear();  // a chunk in the middle of a prompt
  output = runner.model().Forward(plan, runner.cache());
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->logits.rows, 0);
  EXPECT_TRUE(runner.backend().Synchronize().ok());
}

// Of a directory, on the reference backend.
absl::Status LoadStatus(const std::string& dir) {
  base::ComputePool pool(1);
  const auto backend = kernels::CreateBackend("reference", pool).value();
  const auto weights = weights::Weights::Open(dir).value();
  const DecoderConfig config = DecoderConfig::Load(dir).value();
  return LlamaModel::Create(*weights, config, *backend, {}).status();
}

TEST(LlamaModelLoadTest, NanInAnyTensorIsRefusedWithItsName) {
  TinyModelOptions options = {
      .dtype = DType::kBF16, .layers = 1, .attention_bias = true, .mlp_bias = true};
  TempDir whole;
  testing::WriteTinyModel(whole.path(), options);
  ASSERT_TRUE(LoadStatus(whole.path()).ok());
  const auto names = weights::Weights::Open(whole.path()).value()->names();
  int refused = 0;
  for (const std::string& name : names) {
    if (PartOf(name) != ModelPart::kDecoder) continue;
    TempDir dir;
    options.nan_tensor = name;
    testing::WriteTinyModel(dir.path(), options);
    const absl::Status status = LoadStatus(dir.path());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(base::ReasonOf(status), "WEIGHTS_NONFINITE") << name;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(name));
    ++refused;
  }
  EXPECT_EQ(refused, 3 + 9 + 7);
}

INSTANTIATE_TEST_SUITE_P(Backends, LlamaModelTest,
                         ::testing::Values("reference", "cpu", "deferred"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera::decode
