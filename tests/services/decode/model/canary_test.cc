#include "services/decode/model/canary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "absl/strings/match.h"
#include "common/base/compute_pool.h"
#include "common/base/error.h"
#include "kernels/create/create.h"
#include "services/decode/model/llama_model.h"
#include "tests/support/deferred_backend.h"
#include "tests/support/edit_weights.h"
#include "tests/support/tiny_models.h"

namespace tessera::decode {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kSteps = 8;

struct Loaded {
  explicit Loaded(const std::string& dir, const std::string& device = "reference",
                  DType kv = DType::kF32)
      : config(*DecoderConfig::Load(dir)) {
    backend = kernels::CreateBackend(device == "deferred" ? "reference" : device, pool).value();
    if (device == "deferred") backend = testing::MakeDeferredBackend(std::move(backend));
    const auto weights = weights::Weights::Open(dir).value();
    model = LlamaModel::Create(*weights, config, *backend).value();
    spec = SpecFor(config, 1, kv);
  }
  CanaryDevice device(int64_t step_tokens = 512) {
    return {config, *model, *backend, spec, step_tokens};
  }

  base::ComputePool pool{2};
  DecoderConfig config;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<LlamaModel> model;
  kernels::KvCacheSpec spec;
};

Tensor RandomRows(uint32_t seed) {
  Tensor rows(DType::kF32, {4, 32});
  std::mt19937 random(seed);
  for (float& value : rows.f32()) value = static_cast<float>(random() % 2001) / 500.0f - 2;
  return rows;
}

class DecodeCanaryTest : public ::testing::Test {
 protected:
  DecodeCanaryTest() { testing::WriteTinyModel(dir_.path(), {}); }

  // The first of some prompts with which the two pictures differ for sure.
  weights::Canary Written() {
    Loaded reference(dir_.path());
    weights::Canary canary;
    canary.rows = RandomRows(1);
    canary.grey_rows = RandomRows(2);
    for (int32_t id = 4; id < 90; ++id) {
      canary.prompt_ids = {1, 17, -1, -1, -1, -1, 23, id};
      canary.answer =
          AnswerCanary(reference.device(), canary.prompt_ids, canary.rows, kSteps).value();
      canary.grey =
          AnswerCanary(reference.device(), canary.prompt_ids, canary.grey_rows, kSteps).value();
      if (TellsSightFromGrey(canary.answer, canary.grey)) return canary;
    }
    ADD_FAILURE() << "no prompt tells the pictures apart";
    return canary;
  }
  absl::Status Check(const weights::Canary& canary) {
    Loaded model(dir_.path());
    return CheckCanary(canary, model.device(), DType::kF32);
  }
  void Edit(const char* part, void (*edit)(Tensor&)) {
    int edited = 0;
    testing::EditWeights(dir_.path(), [&](absl::string_view name, Tensor& tensor) {
      if (absl::StrContains(name, "vision") || !absl::StrContains(name, part)) return;
      edit(tensor);
      ++edited;
    });
    EXPECT_GT(edited, 0) << part;
  }

  testing::TempDir dir_;
};

TEST_F(DecodeCanaryTest, AGoodModelPassesOnEveryDeviceAndWithEveryCache) {
  const weights::Canary canary = Written();
  for (const char* device : {"reference", "cpu", "deferred"}) {
    for (const DType kv : {DType::kF32, DType::kF16, DType::kI8}) {
      Loaded model(dir_.path(), device, kv);
      const absl::Status status = CheckCanary(canary, model.device(), DType::kF32);
      EXPECT_TRUE(status.ok()) << device << " " << Name(kv) << ": " << status;
    }
  }
}

TEST_F(DecodeCanaryTest, AnAnswerDoesNotDependOnTheChunks) {
  const weights::Canary canary = Written();
  EXPECT_THAT(canary.answer.ids, SizeIs(kSteps));
  for (const int64_t step_tokens : {1, 3, 5, 8}) {
    Loaded model(dir_.path());
    const auto answer =
        AnswerCanary(model.device(step_tokens), canary.prompt_ids, canary.rows, kSteps);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->ids, canary.answer.ids) << step_tokens;
    EXPECT_EQ(answer->gaps, canary.answer.gaps) << step_tokens;
  }
}

// Without attention no token hears of the rows before it.
TEST_F(DecodeCanaryTest, ADecoderThatDoesNotLookAtTheRowsIsBlind) {
  const weights::Canary canary = Written();
  Edit("self_attn.o_proj.weight", testing::Zero);
  const absl::Status status = Check(canary);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(base::ReasonOf(status), "CANARY_BLIND");
  EXPECT_THAT(std::string(status.message()), HasSubstr("blind"));
}

TEST_F(DecodeCanaryTest, OneFlippedMatrixIsNoticed) {
  const weights::Canary canary = Written();
  Edit("layers.1.mlp.down_proj.weight", testing::Flip);
  const absl::Status status = Check(canary);
  EXPECT_EQ(base::ReasonOf(status), "CANARY_FAILED") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("on the reference"));
}

TEST_F(DecodeCanaryTest, AnotherTokenPassesOnlyWhereTheLeadIsSmall) {
  weights::Canary canary = Written();
  canary.answer.ids[0] = canary.answer.ids[0] == 5 ? 6 : 5;
  EXPECT_EQ(base::ReasonOf(Check(canary)), "CANARY_FAILED");
  canary.answer.gaps[0] =
      0.5f * static_cast<float>(CanaryLead(DType::kF32, DType::kF32)) * canary.answer.spreads[0];
  EXPECT_TRUE(Check(canary).ok());
}

TEST_F(DecodeCanaryTest, WhatTheModelCannotBeFedIsABadCanary) {
  const auto reason = [this](auto change) {
    weights::Canary canary = Written();
    change(canary);
    return base::ReasonOf(Check(canary));
  };
  EXPECT_EQ(reason([](auto& c) { c.prompt_ids[0] = 96; }), "CANARY_BAD");
  EXPECT_EQ(reason([](auto& c) { c.prompt_ids[0] = -1; }), "CANARY_BAD");
  EXPECT_EQ(reason([](auto& c) { c.rows = Tensor(DType::kF32, {4, 33}); }), "CANARY_BAD");
  EXPECT_EQ(reason([](auto& c) { c.prompt_ids.resize(250, 7); }), "CANARY_BAD");
}

TEST(TellsSightFromGreyTest, NeedsASureDifferenceBehindSureTokens) {
  const weights::CanaryAnswer answer = {{3, 4, 5}, {2, 2, 2}, {1, 1, 1}};
  weights::CanaryAnswer grey = {{3, 4, 5}, {2, 2, 2}, {1, 1, 1}};
  EXPECT_FALSE(TellsSightFromGrey(answer, grey));
  grey.ids[1] = 9;
  EXPECT_TRUE(TellsSightFromGrey(answer, grey));
  grey.gaps[1] = 0.1f;
  EXPECT_FALSE(TellsSightFromGrey(answer, grey));
  grey.gaps = {0.1f, 2, 2};
  EXPECT_FALSE(TellsSightFromGrey(answer, grey));
}

TEST(CanaryLeadTest, NoDtypeMayTakeASureLead) {
  for (const DType compute : {DType::kF32, DType::kF16}) {
    for (const DType kv : {DType::kF32, DType::kF16, DType::kI8}) {
      EXPECT_LT(CanaryLead(compute, kv), 0.25) << Name(compute) << " " << Name(kv);
    }
  }
}

}  // namespace
}  // namespace tessera::decode
