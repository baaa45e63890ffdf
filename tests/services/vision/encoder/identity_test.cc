#include "services/vision/encoder/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/base/error.h"

namespace tessera::vision {
namespace {

RowIdentity Base() {
  RowIdentity identity;
  identity.preprocessing = "resize 224";
  identity.tower = "clip layer -2";
  identity.weight_bytes = base::Sha256Of("weights");
  return identity;
}

TEST(KeyOf, EveryFieldGivesAnotherKeyAndAnotherFingerprint) {
  std::vector<RowIdentity> all(8, Base());
  all[1].preprocessing = "resize 336";
  all[2].tower = "clip layer -1";
  all[3].weight_bytes = base::Sha256Of("other weights");
  all[4].compute_dtype = DType::kF16;
  all[5].record_dtype = DType::kF32;
  all[6].row_budget = 128;
  all[7].reduction = "pool2";
  std::set<store::EmbeddingKey> keys;
  std::set<std::string> fingerprints;
  for (const RowIdentity& identity : all) {
    keys.insert(KeyOf(identity, "t", base::Sha256Of("picture")));
    fingerprints.insert(FingerprintOf(identity, QualityGate()));
  }
  EXPECT_EQ(fingerprints.size(), all.size());
  keys.insert(KeyOf(Base(), "another tenant", base::Sha256Of("picture")));
  keys.insert(KeyOf(Base(), "t", base::Sha256Of("another picture")));
  EXPECT_EQ(keys.size(), all.size() + 2);
}

TEST(KeyOf, IsStable) {
  EXPECT_EQ(KeyOf(Base(), "t", base::Sha256Of("p")), KeyOf(Base(), "t", base::Sha256Of("p")));
}

TEST(FingerprintOf, ChangesWithTheGateSoThatKnownPicturesAreJudgedAnew) {
  QualityThresholds strict;
  strict.refuse.small_side = 99;
  std::set<std::string> all = {FingerprintOf(Base(), QualityGate()),
                               FingerprintOf(Base(), QualityGate(true, {})),
                               FingerprintOf(Base(), QualityGate(true, strict))};
  EXPECT_EQ(all.size(), 3u);
}

TEST(QualityGate, ScoresSurviveTheRecord) {
  QualityScores scores;
  scores.sharpness = 12.5;
  scores.detail = 0.25;
  scores.exposure = 0.5;
  scores.contrast = 0.125;
  scores.width = 640;
  scores.height = 480;
  const QualityScores back = ScoresFromMap(ScoreMap(scores));
  EXPECT_EQ(back.sharpness, scores.sharpness);
  EXPECT_EQ(back.detail, scores.detail);
  EXPECT_EQ(back.exposure, scores.exposure);
  EXPECT_EQ(back.contrast, scores.contrast);
  EXPECT_EQ(back.width, 640);
  EXPECT_EQ(back.height, 480);
  ScoresFromMap({{"width", 1e300}, {"height", -5}});  // a stranger's numbers do no harm
}

TEST(QualityGate, RefusesByTodaysThresholdsAndNotAtAllWhenOff) {
  QualityScores black;
  black.width = black.height = 100;
  const absl::Status status = QualityGate(true, {}).Check(black);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(status), "IMAGE_QUALITY");
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("dark"));
  EXPECT_TRUE(QualityGate().Check(black).ok());
  EXPECT_FALSE(QualityGate().Judge(black).has_value());
}

}  // namespace
}  // namespace tessera::vision
