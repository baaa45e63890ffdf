// GoldenImages: every verdict of the folders images_* and every pair of preprocess/decode.
#include <gtest/gtest.h>

#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "services/vision/image/image.h"
#include "tests/services/vision/image/pictures.h"

namespace tessera::vision {
namespace {

using base::Json;

constexpr int64_t kMostGrowth = int64_t{50} << 20;  // bytes
constexpr double kMostMeanDifferenceOfJpeg = 3;     // images_odd/README.md, `reference`

Json ReadJsonOrDie(const std::string& path) {
  auto json = base::ReadJsonFile(path);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *std::move(json) : Json::object();
}

void ExpectMeanColor(const RgbImage& image, const Json& expected, double tolerance) {
  double sums[3] = {0, 0, 0};
  for (size_t i = 0; i < image.rgb.size(); ++i) sums[i % 3] += image.rgb[i];
  for (size_t c = 0; c < 3; ++c) {
    const double mean = sums[c] / (static_cast<double>(image.width) * image.height);
    EXPECT_NEAR(mean, expected[c].get<double>(), tolerance) << "channel " << c;
  }
}

void ExpectAccepted(const std::string& folder, const Json& file, const std::string& bytes) {
  auto header = ReadHeader(bytes, ImageLimits());
  auto image = DecodeImage(bytes, ImageLimits());
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(std::string(Name(header->format)), file["format"].get<std::string>());
  EXPECT_EQ(header->width, file["width"].get<int>());
  EXPECT_EQ(header->height, file["height"].get<int>());
  EXPECT_EQ(image->width, header->width);
  EXPECT_EQ(image->height, header->height);
  ExpectMeanColor(*image, file["mean_rgb"], file["tolerance"].get<double>());
  if (file.contains("rgb_sha256")) {
    EXPECT_EQ(Sha256Hex(*image), file["rgb_sha256"].get<std::string>());
  }
  if (file.contains("reference")) {
    const RgbImage reference =
        DecodeOrDie(ReadFileOrDie(folder + "/" + file["reference"].get<std::string>()));
    const auto difference = Compare(*image, reference);
    ASSERT_TRUE(difference.has_value()) << "another size than the reference";
    const bool exact = header->format != ImageFormat::kJpeg;
    EXPECT_LE(difference->mean, exact ? 0 : kMostMeanDifferenceOfJpeg);
  }
}

void ExpectRefused(const std::string& bytes) {
  auto image = DecodeImage(bytes, ImageLimits());
  ASSERT_FALSE(image.ok()) << "accepted";
  EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument) << image.status();
  const std::string reason = base::ReasonOf(image.status());
  EXPECT_TRUE(absl::StartsWith(reason, "IMAGE_")) << image.status();
  EXPECT_LT(image.status().message().size(), 300u);
}

int RunVerdicts(const std::string& folder) {
  const Json verdicts = ReadJsonOrDie(folder + "/verdicts.json");
  int cases = 0;
  for (const Json& file : verdicts["files"]) {
    const std::string name = file["file"].get<std::string>();
    SCOPED_TRACE(folder + "/" + name);
    const std::string bytes = ReadFileOrDie(folder + "/" + name);
    const std::string verdict = file["verdict"].get<std::string>();
    if (verdict == "accept") {
      ExpectAccepted(folder, file, bytes);
    } else if (verdict == "reject") {
      ExpectRefused(bytes);
    } else {
      ADD_FAILURE() << "unknown verdict " << verdict;
    }
    ++cases;
  }
  return cases;
}

int RunDecodePairs(const std::string& folder) {
  const Json index = ReadJsonOrDie(folder + "/index.json");
  int cases = 0;
  for (const Json& file : index["files"]) {
    const std::string name = file["file"].get<std::string>();
    SCOPED_TRACE(folder + "/" + name);
    const RgbImage image = DecodeOrDie(ReadFileOrDie(folder + "/" + name));
    const RgbImage expected =
        DecodeOrDie(ReadFileOrDie(folder + "/" + file["expected"].get<std::string>()));
    EXPECT_EQ(image.width, file["size"][0].get<int>());
    EXPECT_EQ(image.height, file["size"][1].get<int>());
    const auto difference = Compare(image, expected);
    EXPECT_TRUE(difference.has_value());
    EXPECT_LE(difference ? difference->largest : 256, file["tolerance"].get<int>());
    ++cases;
  }
  return cases;
}

TEST(GoldenImages, EveryVerdictAndEveryDecodedPairHolds) {
  const std::string goldens = GoldensDirectory();
  int folders = 0;
  int cases = 0;
  for (const std::string& name : DirectoriesIn(goldens)) {
    if (!absl::StartsWith(name, "images_")) continue;
    const int found = RunVerdicts(goldens + "/" + name);
    EXPECT_GT(found, 0) << name << " has no cases";
    cases += found;
    ++folders;
  }
  const std::string decode = goldens + "/preprocess/decode";
  if (FileExists(decode)) {
    const int found = RunDecodePairs(decode);
    EXPECT_GT(found, 0) << decode << " has no cases";
    cases += found;
    ++folders;
  }
  EXPECT_GT(folders, 0) << "no known folder in " << goldens;
  std::printf("GoldenImages: %d cases in %d folders of %s\n", cases, folders, goldens.c_str());
}

// So that the next test does not pass for want of an instrument.
TEST(GoldenImages, ThePeakOfMemoryIsSeen) {
  ResetPeak();
  const int64_t before = PeakResidentBytes();
  { const std::vector<uint8_t> touched(kMostGrowth + kMostGrowth / 8, uint8_t{1}); }
  EXPECT_GE(PeakResidentBytes() - before, kMostGrowth);
}

TEST(GoldenImages, ClaimsAndBombsTakeNoMemory) {
  const std::string goldens = GoldensDirectory();
  int cases = 0;
  for (const std::string& folder : DirectoriesIn(goldens)) {
    if (!absl::StartsWith(folder, "images_")) continue;
    for (const std::string& name : FilesIn(goldens + "/" + folder)) {
      if (!absl::StrContains(name, "_claims_") && !absl::StrContains(name, "_bomb_")) continue;
      SCOPED_TRACE(folder + "/" + name);
      const std::string bytes = ReadFileOrDie(absl::StrCat(goldens, "/", folder, "/", name));
      ResetPeak();
      const int64_t before = PeakResidentBytes();
      EXPECT_FALSE(DecodeImage(bytes, ImageLimits()).ok());
      EXPECT_LT(PeakResidentBytes() - before, kMostGrowth);
      ++cases;
    }
  }
  std::printf("GoldenImages: memory watched in %d cases\n", cases);
}

}  // namespace
}  // namespace tessera::vision
