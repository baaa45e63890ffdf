// Verdicts of whole pictures: decoded, brought to the model's input, scored, judged.
#include "services/vision/image/quality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "services/vision/preprocess/preprocess.h"
#include "tests/services/vision/image/pictures.h"

namespace tessera::vision {
namespace {

using base::Json;

constexpr char kModel[] = "models/shelf-vqa";
constexpr int kDrawnSide = 224;  // of the evaluation pictures; degradations scale with it

PreprocessConfig ConfigOf(const std::string& model) {
  auto config = PreprocessConfig::Load(model);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : PreprocessConfig();
}

QualityScores ScoresOf(const RgbImage& image, const PreprocessConfig& config) {
  auto input = Preprocess(image, config);
  EXPECT_TRUE(input.ok()) << input.status();
  if (!input.ok()) return QualityScores();
  return ScoreQuality(input->u8.data(), input->height, input->width, image.width, image.height);
}

std::string Text(const QualityScores& scores, const QualityVerdict& verdict) {
  return absl::StrCat(std::string(Name(verdict.verdict)), " [", absl::StrJoin(verdict.reasons, ","),
                      "] sharpness ", scores.sharpness, " detail ", scores.detail, " exposure ",
                      scores.exposure, " contrast ", scores.contrast);
}

void ExpectPass(const RgbImage& image, const PreprocessConfig& config) {
  const QualityScores scores = ScoresOf(image, config);
  const QualityVerdict verdict = Judge(scores, QualityThresholds());
  EXPECT_EQ(verdict.verdict, Verdict::kPass) << Text(scores, verdict);
}

std::vector<RgbImage> EvaluationPictures() {
  std::vector<RgbImage> pictures;
  const std::string folder = absl::StrCat(kModel, "/eval/pictures/");
  for (const std::string& name : FilesIn(folder)) {
    pictures.push_back(DecodeOrDie(ReadFileOrDie(folder + name)));
  }
  EXPECT_FALSE(pictures.empty());
  return pictures;
}

cv::Mat Pixels(RgbImage& image) { return {image.height, image.width, CV_8UC3, image.rgb.data()}; }

// The four degradations of tools/shelf/shelf.py that must be refused, level 0 to 1.
RgbImage Blurred(RgbImage image, double level) {
  cv::Mat pixels = Pixels(image);
  cv::GaussianBlur(pixels, pixels, cv::Size(0, 0), level * 4 * image.width / kDrawnSide);
  return image;
}
RgbImage Darkened(RgbImage image, double level) {
  for (uint8_t& value : image.rgb) value = static_cast<uint8_t>(value * (1 - 0.92 * level));
  return image;
}
RgbImage Flattened(RgbImage image, double level) {
  const cv::Scalar mean = cv::mean(Pixels(image));
  const double grey = 0.299 * mean[0] + 0.587 * mean[1] + 0.114 * mean[2];
  for (uint8_t& value : image.rgb) {
    value = static_cast<uint8_t>(grey + (value - grey) * (1 - 0.95 * level));
  }
  return image;
}
RgbImage LostResolution(RgbImage image, double level) {
  const int side = std::max(16, static_cast<int>(kDrawnSide * (1 - 0.88 * level)));
  const auto resize = [](const RgbImage& in, int width, int height) {
    const ResampleShape shape = {in.width, in.height, width, height, {0, width}, {0, height}};
    const auto row = [&in](int y) { return in.rgb.data() + int64_t{y} * in.width * 3; };
    return RgbImage{width, height, Resample(row, shape, Filter::kBilinear)};
  };
  return resize(resize(image, side, side), image.width, image.height);
}

void ExpectRefused(RgbImage (*degrade)(RgbImage, double), const std::string& reason) {
  const PreprocessConfig config = ConfigOf(kModel);
  for (const double level : {0.9, 1.0}) {
    int refused = 0;
    int count = 0;
    for (const RgbImage& picture : EvaluationPictures()) {
      const QualityScores scores = ScoresOf(degrade(picture, level), config);
      const QualityVerdict verdict = Judge(scores, QualityThresholds());
      EXPECT_EQ(verdict.verdict, Verdict::kRefuse) << Text(scores, verdict);
      const auto& reasons = verdict.reasons;
      EXPECT_TRUE(std::find(reasons.begin(), reasons.end(), reason) != reasons.end())
          << Text(scores, verdict);
      refused += verdict.verdict == Verdict::kRefuse ? 1 : 0;
      ++count;
    }
    std::printf("%s at %.1f: %d of %d refused\n", reason.c_str(), level, refused, count);
  }
}

TEST(Quality, EvaluationPicturesPass) {
  const PreprocessConfig config = ConfigOf(kModel);
  for (const RgbImage& picture : EvaluationPictures()) ExpectPass(picture, config);
}

TEST(Quality, PicturesOfTheDemonstrationPass) {
  const PreprocessConfig config = ConfigOf(kModel);
  for (const std::string& name : FilesIn(absl::StrCat(kModel, "/demo"))) {
    if (!absl::EndsWith(name, ".jpg")) continue;
    SCOPED_TRACE(name);
    ExpectPass(DecodeOrDie(ReadFileOrDie(absl::StrCat(kModel, "/demo/", name))), config);
  }
}

TEST(Quality, PicturesOfEveryKnownModelPassAtItsInputSize) {
  const std::string models = GoldensDirectory() + "/models/";
  for (const std::string& model : DirectoriesIn(models)) {
    const auto config = PreprocessConfig::Load(models + model);
    if (!config.ok()) continue;  // the golden test says which may be unknown
    for (const std::string& name : FilesIn(models + model + "/inputs")) {
      SCOPED_TRACE(model + " " + name);
      ExpectPass(DecodeOrDie(ReadFileOrDie(models + model + "/inputs/" + name)), *config);
    }
  }
}

// Every data URL anywhere in the value.
void CollectPictures(const Json& value, std::vector<std::string>& pictures) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const size_t at = text.find("base64,");
    std::string bytes;
    if (absl::StartsWith(text, "data:") && at != std::string::npos &&
        absl::Base64Unescape(absl::string_view(text).substr(at + 7), &bytes)) {
      pictures.push_back(bytes);
    }
  }
  if (value.is_structured()) {
    for (const Json& child : value) CollectPictures(child, pictures);
  }
}

TEST(Quality, PicturesOfGoodRequestsPass) {
  const std::string path = GoldensDirectory() + "/json_bad/verdicts.json";
  if (!FileExists(path)) return;
  const PreprocessConfig config = ConfigOf(kModel);
  auto verdicts = base::ReadJsonFile(path);
  ASSERT_TRUE(verdicts.ok()) << verdicts.status();
  int count = 0;
  for (const Json& one : (*verdicts)["cases"]) {
    if (one["http_status"] != Json(200) || !one.contains("body")) continue;
    auto body = base::ParseJson(one["body"].get<std::string>());
    if (!body.ok()) continue;
    std::vector<std::string> pictures;
    CollectPictures(*body, pictures);
    for (const std::string& picture : pictures) {
      SCOPED_TRACE(one["name"].get<std::string>());
      ExpectPass(DecodeOrDie(picture), config);
      ++count;
    }
  }
  EXPECT_GT(count, 0);
}

TEST(Quality, HeavyBlurIsRefused) { ExpectRefused(Blurred, "blur"); }
TEST(Quality, HeavyDarknessIsRefused) { ExpectRefused(Darkened, "dark"); }
TEST(Quality, LostContrastIsRefused) { ExpectRefused(Flattened, "flat"); }
TEST(Quality, LostResolutionIsRefused) { ExpectRefused(LostResolution, "blur"); }

TEST(Quality, OneColourIsFlatAndDoesNotDivideByItsVariance) {
  const QualityScores scores = ScoresOf(Filled(64, 64, 90, 90, 90), ConfigOf(kModel));
  EXPECT_NEAR(scores.sharpness, 0, 1e-6);
  EXPECT_NEAR(scores.detail, 0, 1e-3);
  EXPECT_EQ(Judge(scores, QualityThresholds()).verdict, Verdict::kRefuse);
}

TEST(Quality, ASmallSharpPictureIsNotBlurred) {
  const PreprocessConfig config = ConfigOf(kModel);
  RgbImage board = Filled(24, 24, 20, 20, 20);
  for (int i = 0; i < 24 * 24; ++i) {
    if ((i / 24 / 4 + i % 24 / 4) % 2 == 0) board.rgb[i * 3 + 1] = 230;
  }
  ExpectPass(board, config);
}

TEST(Quality, ThresholdsDecideWhenAVerdictIsMade) {
  QualityScores scores = {300, 0.3, 0.5, 0.2, 640, 480};
  EXPECT_EQ(Judge(scores, QualityThresholds()).verdict, Verdict::kPass);
  QualityThresholds strict;
  strict.warn.small_side = 500;
  const QualityVerdict warned = Judge(scores, strict);
  EXPECT_EQ(warned.verdict, Verdict::kWarn);
  EXPECT_EQ(warned.reasons, std::vector<std::string>{"small"});
  strict.refuse.small_side = 481;
  EXPECT_EQ(Judge(scores, strict).verdict, Verdict::kRefuse);
}

TEST(Quality, ANightViewWithLightsIsNotDark) {
  const QualityScores scores = {400, 0.5, 0.09, 0.18, 800, 600};
  EXPECT_EQ(Judge(scores, QualityThresholds()).verdict, Verdict::kPass);
}

}  // namespace
}  // namespace tessera::vision
