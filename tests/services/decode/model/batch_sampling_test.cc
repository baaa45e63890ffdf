#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/services/decode/model/paged_runner.h"
#include "tests/support/golden_case.h"

// "The same answer", drawn: what a request gets does not depend on who is drawn beside it.
namespace tessera::decode {
namespace {

using kernels::LogitBias;
using kernels::Sampled;
using kernels::SamplingRow;
using testing::GoldenCase;
using testing::GoldenModel;
using testing::PagedRunner;
using testing::Script;

constexpr size_t kBatch = 8;
constexpr int64_t kTokens = 24;
constexpr LogitBias kBias[] = {{5, -1.5f}, {9, 0.75f}, {30, 2.0f}, {31, -100.0f}};

// Every setting alone and together with others; two rows differ in their seed only.
std::vector<SamplingRow> Settings() {
  return {{},
          {.temperature = 1.0f, .seed = 1},
          {.temperature = 1.0f, .seed = 2},
          {.temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .seed = 3, .bias = kBias},
          {.temperature = 1.3f, .min_p = 0.05f, .seed = ~uint64_t{0}, .repetition_penalty = 1.3f},
          {.repetition_penalty = 1.8f, .frequency_penalty = 0.4f, .bias = kBias},
          {.temperature = 0.6f, .seed = 5, .frequency_penalty = 0.9f, .presence_penalty = 0.7f},
          {.temperature = 2.0f,
           .top_k = 50,
           .top_p = 0.95f,
           .min_p = 0.01f,
           .seed = 6,
           .repetition_penalty = 0.9f,
           .frequency_penalty = -0.2f,
           .presence_penalty = 1.5f,
           .bias = kBias}};
}

// Eight prompts: the model's cases, again from the start where there are fewer. With and without
// pictures, all of different lengths.
std::vector<Script> Prompts(const GoldenModel& model) {
  std::vector<Script> prompts;
  for (size_t i = 0; prompts.size() < kBatch && i < 4 * kBatch; ++i) {
    const GoldenCase& golden = model.cases[i % model.cases.size()];
    std::optional<Script> script = testing::ScriptOf(model, golden, DType::kF16);
    if (!script.has_value()) continue;
    script->ids.resize(script->prompt);
    script->positions.resize(script->prompt);
    script->Append(std::vector<int32_t>(i, 11));
    script->prompt = script->size();
    prompts.push_back(*std::move(script));
  }
  return prompts;
}

bool Same(const Sampled& a, const Sampled& b) {
  return a.finite && b.finite && a.id == b.id &&
         std::memcmp(&a.logprob, &b.logprob, sizeof(a.logprob)) == 0 &&
         std::memcmp(a.top_ids, b.top_ids, sizeof(a.top_ids)) == 0 &&
         std::memcmp(a.top_logprobs, b.top_logprobs, sizeof(a.top_logprobs)) == 0;
}

std::vector<int32_t> IdsOf(const std::vector<Sampled>& answer) {
  std::vector<int32_t> ids;
  for (const Sampled& sampled : answer) ids.push_back(sampled.id);
  return ids;
}

struct Setting {
  const char* device;
  DType kv_dtype;
};

class BatchSampling : public ::testing::TestWithParam<Setting> {
 protected:
  PagedRunner Make(const std::string& dir, int threads, uint32_t block_seed) const {
    return PagedRunner(dir, {.device = GetParam().device,
                             .threads = threads,
                             .kv_dtype = GetParam().kv_dtype,
                             .block_seed = block_seed});
  }
};

TEST_P(BatchSampling, ARequestDrawsTheSameAloneAndInABatchOfEight) {
  const auto models = testing::FindGoldenModels();
  ASSERT_TRUE(models.ok()) << models.status();
  const std::vector<SamplingRow> settings = Settings();
  ASSERT_EQ(settings.size(), kBatch);
  int compared = 0;
  for (const GoldenModel& model : *models) {
    const std::vector<Script> prompts = Prompts(model);
    if (prompts.size() < kBatch) continue;
    const bool slow = prompts[0].size() > 200 && std::string(GetParam().device) == "reference";
    if (slow) continue;  // the bundled model: on the CPU
    PagedRunner together = Make(model.dir, /*threads=*/2, /*block_seed=*/3);
    // Prompts of several chunks, so that some decode while others still prefill.
    const auto batch = together.Generate(prompts, settings, kTokens, /*chunk=*/17);
    for (size_t i = 0; i < kBatch; ++i) {
      PagedRunner alone = Make(model.dir, /*threads=*/1, /*block_seed=*/0);
      const auto solo = alone.Generate({prompts[i]}, {settings[i]}, kTokens, /*chunk=*/4096)[0];
      ASSERT_EQ(solo.size(), batch[i].size());
      EXPECT_EQ(IdsOf(solo), IdsOf(batch[i])) << model.dir << " setting " << i;
      for (size_t t = 0; t < solo.size(); ++t, ++compared) {
        EXPECT_TRUE(Same(solo[t], batch[i][t])) << model.dir << " setting " << i << " token " << t;
      }
    }
  }
  std::printf("BatchSampling: %d tokens on %s\n", compared, GetParam().device);
  EXPECT_GT(compared, 0);
}

// Who has the same prompt and settings, only another seed, gets another answer; with the same seed
// the same one.
TEST_P(BatchSampling, TheSeedAloneTellsOneAnswerFromAnother) {
  const auto models = testing::FindGoldenModels();
  ASSERT_TRUE(models.ok()) << models.status();
  const GoldenModel& model = models->front();
  const Script prompt = Prompts(model)[0];
  std::vector<SamplingRow> rows(kBatch, SamplingRow{.temperature = 1.5f});
  for (size_t i = 0; i < kBatch; ++i) rows[i].seed = i / 2;
  PagedRunner runner = Make(model.dir, /*threads=*/2, /*block_seed=*/0);
  const auto answers = runner.Generate(std::vector<Script>(kBatch, prompt), rows, kTokens, 64);
  for (size_t i = 0; i < kBatch; i += 2) {
    EXPECT_EQ(IdsOf(answers[i]), IdsOf(answers[i + 1]));
    EXPECT_NE(IdsOf(answers[i]), IdsOf(answers[(i + 2) % kBatch]));
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, BatchSampling,
                         ::testing::Values(Setting{"reference", DType::kF32},
                                           Setting{"cpu", DType::kF16}, Setting{"cpu", DType::kI8}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.device, "_",
                                               std::string(Name(info.param.kv_dtype)));
                         });

}  // namespace
}  // namespace tessera::decode
