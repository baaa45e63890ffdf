#include "services/decode/model/model_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/golden_case.h"
#include "tests/support/tiny_models.h"

namespace tessera::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ModelSummaryTest, CountsWhatAModelHolds) {
  testing::TempDir dir;
  testing::WriteTinyModel(dir.path(), {.dtype = DType::kF16});
  const auto summary = Inspect(dir.path());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->family, "llava");
  EXPECT_EQ(summary->text_family, "llama");
  EXPECT_THAT(summary->element_types, ElementsAre("F16"));
  const int64_t layer = 2 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 48;
  EXPECT_EQ(summary->decoder_parameters, 2 * 96 * 32 + 2 * layer + 32);
  EXPECT_EQ(summary->connector_parameters, 2 * (32 * 32 + 32));
  EXPECT_EQ(summary->other_parameters, 0);
  EXPECT_EQ(summary->weight_bytes, 2 * summary->parameters());
  EXPECT_EQ(summary->kv_bytes_per_token_f16, 2 * 2 * 16 * 2);
  EXPECT_EQ(summary->kv_bytes_per_token_f32, 2 * 2 * 16 * 4);
  ASSERT_TRUE(summary->decoder.has_value());
  EXPECT_EQ(summary->decoder->layers, 2);
  EXPECT_THAT(summary->unsupported, IsEmpty());
  EXPECT_THAT(summary->unused_tensors, IsEmpty());
  EXPECT_FALSE(summary->tied_head);
}

TEST(ModelSummaryTest, TellsWhatIsNotSupportedAndStillCounts) {
  testing::TempDir dir;
  testing::WriteTinyModel(dir.path(), {.config_patch = {{"model_type", "llava_next"}}});
  auto summary = Inspect(dir.path());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->family, "llava_next");
  EXPECT_THAT(summary->unsupported, ElementsAre(HasSubstr("llava_next")));
  EXPECT_GT(summary->decoder_parameters, 0);

  std::filesystem::remove(dir.path() + "/model.safetensors");
  summary = Inspect(dir.path());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->unsupported.size(), 2u);
  EXPECT_FALSE(Inspect(dir.path() + "/nowhere").ok());
}

TEST(ModelSummaryTest, EveryGoldenModelIsSupported) {
  const auto models = testing::FindGoldenModels();
  ASSERT_TRUE(models.ok()) << models.status();
  for (const testing::GoldenModel& model : *models) {
    const auto summary = Inspect(model.dir);
    ASSERT_TRUE(summary.ok()) << model.dir << " " << summary.status();
    EXPECT_GT(summary->decoder_parameters, 0) << model.dir;
    EXPECT_GT(summary->vision_parameters, 0) << model.dir;
    EXPECT_THAT(summary->unsupported, IsEmpty()) << model.dir;
  }
}

}  // namespace
}  // namespace tessera::decode
