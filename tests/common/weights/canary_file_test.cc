#include "common/weights/canary_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/weights/safetensors_writer.h"
#include "tests/support/tiny_models.h"

namespace tessera::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Rows(float first) {
  Tensor rows(DType::kF32, {2, 3});
  for (size_t i = 0; i < 6; ++i) rows.f32()[i] = first + static_cast<float>(i);
  return rows;
}

Canary Some() {
  Canary canary;
  canary.model_digest = "d1";
  canary.preprocessing = "resize=28";
  canary.picture = std::string("B\0M", 3);
  canary.rows = Rows(1);
  canary.grey_rows = Rows(9);
  canary.prompt_ids = {1, -1, -1, 5};
  canary.answer = {{7, 8}, {0.5f, 2}, {1, 1.5f}};
  canary.grey = {{7, 9}, {0.25f, 3}, {1, 1}};
  return canary;
}

void Write(const std::string& dir, const std::string& bytes) {
  ASSERT_TRUE(ReplaceFile(dir + "/" + kCanaryFileName, bytes).ok());
}

absl::Status Refusal(const Canary& canary) { return ParseCanary(CanaryBytes(canary)).status(); }

TEST(CanaryFileTest, WhatIsWrittenIsRead) {
  const auto read = ParseCanary(CanaryBytes(Some()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model_digest, "d1");
  EXPECT_EQ(read->preprocessing, "resize=28");
  EXPECT_EQ(read->picture, std::string("B\0M", 3));
  EXPECT_THAT(read->rows.f32(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(read->grey_rows.shape(), ElementsAre(2, 3));
  EXPECT_THAT(read->prompt_ids, ElementsAre(1, -1, -1, 5));
  EXPECT_THAT(read->answer.ids, ElementsAre(7, 8));
  EXPECT_THAT(read->grey.gaps, ElementsAre(0.25f, 3));
  EXPECT_THAT(read->answer.spreads, ElementsAre(1, 1.5f));
}

TEST(CanaryFileTest, NoFileIsNoCanary) {
  testing::TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  const auto canary = ReadCanary(dir.path());
  ASSERT_TRUE(canary.ok()) << canary.status();
  EXPECT_FALSE(canary->has_value());
}

TEST(CanaryFileTest, ACanaryIsOfOneModel) {
  testing::TempDir dir, other;
  testing::WriteTinyModel(dir.path(), {});
  testing::WriteTinyModel(other.path(), {.layers = 3});
  Canary canary = Some();
  canary.model_digest = ModelDigest(dir.path()).value();
  Write(dir.path(), CanaryBytes(canary));
  Write(other.path(), CanaryBytes(canary));
  const auto own = ReadCanary(dir.path());
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_TRUE(own->has_value());
  const absl::Status status = ReadCanary(other.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(base::ReasonOf(status), "CANARY_OTHER_MODEL");
  EXPECT_THAT(std::string(status.message()), HasSubstr("another model"));
}

// The values of weights are what the canary tests: they must not make it another model's.
TEST(CanaryFileTest, OtherValuesAreTheSameModel) {
  testing::TempDir dir, other;
  testing::WriteTinyModel(dir.path(), {.seed = 1});
  testing::WriteTinyModel(other.path(), {.seed = 2});
  EXPECT_EQ(ModelDigest(dir.path()).value(), ModelDigest(other.path()).value());
}

TEST(CanaryFileTest, EveryCutOfAFileIsRefusedByName) {
  testing::TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  const std::string bytes = CanaryBytes(Some());
  for (size_t size = 0; size < bytes.size(); size += 7) {
    EXPECT_EQ(base::ReasonOf(ParseCanary(bytes.substr(0, size)).status()), "CANARY_BAD") << size;
  }
  Write(dir.path(), bytes.substr(0, 100));
  const absl::Status status = ReadCanary(dir.path()).status();
  EXPECT_EQ(base::ReasonOf(status), "CANARY_BAD");
  EXPECT_THAT(std::string(status.message()), HasSubstr(kCanaryFileName));
}

TEST(CanaryFileTest, WhatDoesNotFitIsRefused) {
  Canary nan = Some();
  nan.rows.f32()[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(std::string(Refusal(nan).message()), HasSubstr("rows"));
  Canary short_gaps = Some();
  short_gaps.answer.gaps.pop_back();
  EXPECT_EQ(base::ReasonOf(Refusal(short_gaps)), "CANARY_BAD");

  std::string file = CanaryBytes(Some());
  const size_t at = file.find("\"format\":\"1\"");
  ASSERT_NE(at, std::string::npos);
  file[at + 10] = '2';
  EXPECT_THAT(std::string(ParseCanary(file).status().message()), HasSubstr("format"));
  // One place for a row fewer than there are rows.
  std::string places = CanaryBytes(Some());
  const std::string row(4, '\xFF');
  places.replace(places.find(row), 4, std::string("\x05\0\0\0", 4));
  EXPECT_THAT(std::string(ParseCanary(places).status().message()), HasSubstr("places"));
}

}  // namespace
}  // namespace tessera::weights
