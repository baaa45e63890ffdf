#include "services/vision/preprocess/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"

namespace tessera::vision {
namespace {

using Resize = PreprocessConfig::Resize;

absl::StatusOr<PreprocessConfig> Parse(const std::string& text) {
  auto json = base::ParseJson(text);
  EXPECT_TRUE(json.ok()) << json.status();
  return PreprocessConfig::FromJson(*json);
}

PreprocessConfig ParseOrDie(const std::string& text) {
  auto config = Parse(text);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : PreprocessConfig();
}

// A CLIP configuration with one more key.
std::string Clip(const std::string& more) {
  return absl::StrCat(R"({"image_processor_type": "CLIPImageProcessor")", more.empty() ? "" : ", ",
                      more, "}");
}

TEST(PreprocessConfig, DefaultsOfClipAreItsProcessors) {
  const PreprocessConfig config = ParseOrDie(Clip(""));
  EXPECT_EQ(config.resize, Resize::kShortestEdge);
  EXPECT_EQ(config.shortest_edge, 224);
  EXPECT_EQ(config.filter, Filter::kBicubic);
  EXPECT_TRUE(config.center_crop);
  EXPECT_EQ(config.crop_height, 224);
  EXPECT_TRUE(config.rescale);
  EXPECT_DOUBLE_EQ(config.rescale_factor, 1.0 / 255);
  EXPECT_TRUE(config.normalize);
  EXPECT_DOUBLE_EQ(config.mean[0], 0.48145466);
  EXPECT_FALSE(config.pad_to_square);
}

TEST(PreprocessConfig, OldFilesHoldBareNumbers) {
  const PreprocessConfig config = ParseOrDie(
      R"({"feature_extractor_type": "CLIPFeatureExtractor", "size": 56, "crop_size": 42})");
  EXPECT_EQ(config.shortest_edge, 56);
  EXPECT_EQ(config.crop_height, 42);
  EXPECT_EQ(config.crop_width, 42);
  EXPECT_TRUE(config.rescale);
}

TEST(PreprocessConfig, NullMeansAbsent) {
  EXPECT_EQ(ParseOrDie(Clip(R"("size": null, "do_pad": null, "crop_size": null)")).Canonical(),
            ParseOrDie(Clip("")).Canonical());
}

TEST(PreprocessConfig, BlipSqueezesAndDoesNotCrop) {
  const PreprocessConfig config =
      ParseOrDie(R"({"image_processor_type": "BlipImageProcessor", "size": 364})");
  EXPECT_EQ(config.resize, Resize::kExact);
  EXPECT_EQ(config.resize_height, 364);
  EXPECT_EQ(config.resize_width, 364);
  EXPECT_FALSE(config.center_crop);
}

TEST(PreprocessConfig, FastAndSlowProcessorsAreOne) {
  EXPECT_EQ(ParseOrDie(R"({"image_processor_type": "CLIPImageProcessorFast"})").Canonical(),
            ParseOrDie(Clip("")).Canonical());
}

TEST(PreprocessConfig, LlavaPadsWithItsMeanColour) {
  const PreprocessConfig config =
      ParseOrDie(R"({"image_processor_type": "LlavaImageProcessor", "do_pad": true})");
  EXPECT_TRUE(config.pad_to_square);
  EXPECT_EQ(config.pad_color, (std::array<uint8_t, 3>{122, 116, 104}));
}

TEST(PreprocessConfig, SwitchesAreHonoured) {
  const PreprocessConfig config = ParseOrDie(Clip(
      R"("do_resize": false, "do_center_crop": false, "do_rescale": false, "do_normalize": false)"));
  EXPECT_EQ(config.resize, Resize::kNone);
  EXPECT_FALSE(config.center_crop || config.rescale || config.normalize);
}

struct Refusal {
  const char* more;   // keys beside a CLIP type
  const char* field;  // that is blamed
  const char* reason;
};

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, NamesKeyValueAndWhatIsSupported) {
  auto config = Parse(Clip(GetParam().more));
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::FieldOf(config.status()), GetParam().field) << config.status();
  EXPECT_EQ(base::ReasonOf(config.status()), GetParam().reason) << config.status();
  EXPECT_TRUE(absl::StrContains(config.status().message(), "supported: ")) << config.status();
}

INSTANTIATE_TEST_SUITE_P(
    Values, Refused,
    ::testing::Values(
        Refusal{R"("resample": 0)", "resample", "MODEL_UNSUPPORTED"},
        Refusal{R"("resample": 5)", "resample", "MODEL_UNSUPPORTED"},
        Refusal{R"("resample": "bicubic")", "resample", "MODEL_CONFIG_BAD"},
        Refusal{R"("size": {"longest_edge": 5})", "size", "MODEL_UNSUPPORTED"},
        Refusal{R"("size": {"height": 5})", "size", "MODEL_CONFIG_BAD"},
        Refusal{R"("size": -1)", "size", "MODEL_CONFIG_BAD"},
        Refusal{R"("size": 1e9)", "size", "MODEL_CONFIG_BAD"},
        Refusal{R"("size": 9000000000000000000)", "size", "MODEL_CONFIG_BAD"},
        Refusal{R"("size": {"shortest_edge": true})", "size.shortest_edge", "MODEL_CONFIG_BAD"},
        Refusal{R"("crop_size": {"height": 0, "width": 2})", "crop_size.height",
                "MODEL_CONFIG_BAD"},
        Refusal{R"("do_resize": 1)", "do_resize", "MODEL_CONFIG_BAD"},
        Refusal{R"("do_pad": true)", "do_pad", "MODEL_UNSUPPORTED"},
        Refusal{R"("do_image_splitting": true)", "do_image_splitting", "MODEL_UNSUPPORTED"},
        Refusal{R"("crop_to_patches": true)", "crop_to_patches", "MODEL_UNSUPPORTED"},
        Refusal{R"("image_grid_pinpoints": [[1, 2]])", "image_grid_pinpoints", "MODEL_UNSUPPORTED"},
        Refusal{R"("data_format": "channels_last")", "data_format", "MODEL_UNSUPPORTED"},
        Refusal{R"("image_mean": [1, 2])", "image_mean", "MODEL_CONFIG_BAD"},
        Refusal{R"("image_mean": 0.5)", "image_mean", "MODEL_CONFIG_BAD"},
        Refusal{R"("image_std": [1, 0, 1])", "image_std", "MODEL_CONFIG_BAD"},
        Refusal{R"("rescale_factor": "x")", "rescale_factor", "MODEL_CONFIG_BAD"}));

struct Range {
  const char* key;
  std::vector<const char*> good, bad;
};

TEST(PreprocessConfig, EveryNumberHasARangeWithItsEndsAndNothingBeyond) {
  const Range kRanges[] = {
      {"size",
       {"1", "2048", R"({"shortest_edge": 56})", R"({"height": 1, "width": 2048})"},
       {"0", "-1", "2049", "56.0", "\"56\"", "[56, 56]", R"({"shortest_edge": 0})",
        R"({"height": 5, "width": 0})", R"({"height": -5, "width": 5})", "{}"}},
      {"crop_size",
       {"1", "2048", R"({"height": 1, "width": 2048})"},
       {"0", "-1", "2049", "1e2", R"({"height": 5})", R"({"height": 5, "width": 1e9})"}},
      {"resample", {"1", "3"}, {"-1", "0", "4", "2.0", "18446744073709551615"}},
      {"rescale_factor",
       {"1e-6", "0.00392156862745098", "1"},
       {"0", "0.0", "-0.00392", "1e-300", "1.5", "255", "\"1/255\"", "[]"}},
      {"image_mean",
       {"[0, 0, 0]", "[-1000, 122.7, 1000]"},
       {"[]", "[1, 2]", "[1, 2, 3, 4]", "[0, 0, 1e308]", "[0, 0, \"0\"]", "[0, null, 0]", "0.5"}},
      {"image_std",
       {"[1, 1, 1]", "[1e-6, 58.4, 1000]"},
       {"[1, 1]", "[0, 1, 1]", "[1, 1, 0.0]", "[1, -1, 1]", "[1, 1e-300, 1]", "[1, 1e308, 1]",
        "1"}},
      {"do_resize", {"true", "false"}, {"0", "\"no\""}},
      {"do_center_crop", {"true", "false"}, {"0", "\"no\""}},
      {"do_rescale", {"true", "false"}, {"0", "\"no\""}},
      {"do_normalize", {"true", "false"}, {"0", "\"no\""}},
      {"do_convert_rgb", {"true", "false"}, {"0", "\"no\""}},
  };
  for (const Range& range : kRanges) {
    const auto status = [&range](const char* value) {
      return Parse(Clip(absl::StrCat("\"", range.key, "\": ", value))).status();
    };
    for (const char* value : range.good) {
      EXPECT_TRUE(status(value).ok()) << range.key << " " << status(value);
    }
    for (const char* value : range.bad) {
      const absl::Status refused = status(value);
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << range.key << " = " << value;
      EXPECT_TRUE(absl::StartsWith(base::FieldOf(refused), range.key)) << refused;
      EXPECT_TRUE(absl::StrContains(refused.message(), "supported: ")) << refused;
    }
  }
}

TEST(PreprocessConfig, UnknownAndLaterProcessorsAreNamed) {
  for (const char* type : {"Qwen2VLImageProcessor", "GotOcr2ImageProcessorFast",
                           "LlavaNextImageProcessor", "NoSuchProcessor"}) {
    auto config = Parse(absl::StrCat(R"({"image_processor_type": ")", type, R"("})"));
    ASSERT_FALSE(config.ok());
    EXPECT_TRUE(absl::StrContains(config.status().message(), type)) << config.status();
    EXPECT_TRUE(absl::StrContains(config.status().message(), "CLIPImageProcessor"));
  }
  EXPECT_FALSE(Parse("{}").ok());
  EXPECT_FALSE(Parse("[]").ok());
}

TEST(PreprocessConfig, EveryNumberThatChangesAPixelChangesTheCanonicalText) {
  PreprocessConfig base;
  base.pad_to_square = true;
  base.resize = Resize::kShortestEdge;
  base.shortest_edge = 56;
  base.center_crop = true;
  base.crop_height = base.crop_width = 56;
  base.std = {1, 1, 1};
  std::set<std::string> texts = {base.Canonical()};
  const auto distinct = [&](auto change) {
    PreprocessConfig config = base;
    change(config);
    EXPECT_TRUE(texts.insert(config.Canonical()).second) << config.Canonical();
  };
  distinct([](auto& c) { c.pad_to_square = false; });
  distinct([](auto& c) { c.pad_color[1] = 7; });
  distinct([](auto& c) { c.resize = Resize::kNone; });
  distinct([](auto& c) { c.resize = Resize::kExact; });
  distinct([](auto& c) { c.shortest_edge = 57; });
  distinct([](auto& c) { c.filter = Filter::kLanczos; });
  distinct([](auto& c) { c.center_crop = false; });
  distinct([](auto& c) { c.crop_width = 55; });
  distinct([](auto& c) { c.rescale = false; });
  distinct([](auto& c) { c.rescale_factor = 1.0 / 254; });
  distinct([](auto& c) { c.normalize = false; });
  distinct([](auto& c) { c.mean[2] = 1e-17; });
  distinct([](auto& c) { c.std[0] = 1 + 1e-15; });
}

class ModelDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "preprocess_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(path_ + "/" + name) << text;
  }

  std::string path_;
};

TEST_F(ModelDirectory, NestedSettingsWinOverTheOldFile) {
  Write("preprocessor_config.json", Clip(R"("size": 70)"));
  Write("processor_config.json", R"({"image_processor": )" + Clip(R"("size": 56)") + "}");
  auto config = PreprocessConfig::Load(path_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shortest_edge, 56);
}

TEST_F(ModelDirectory, AProcessorFileWithoutPicturesLeavesTheOldFile) {
  Write("preprocessor_config.json", Clip(R"("size": 70)"));
  Write("processor_config.json", R"({"patch_size": 14})");
  auto config = PreprocessConfig::Load(path_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shortest_edge, 70);
}

TEST_F(ModelDirectory, NeitherFileIsNotFoundAndABrokenOneIsNamed) {
  EXPECT_TRUE(absl::IsNotFound(PreprocessConfig::Load(path_).status()));
  Write("preprocessor_config.json", Clip(R"("resample": 0)"));
  const absl::Status status = PreprocessConfig::Load(path_).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "preprocessor_config.json")) << status;
  EXPECT_EQ(base::FieldOf(status), "resample");
}

}  // namespace
}  // namespace tessera::vision
