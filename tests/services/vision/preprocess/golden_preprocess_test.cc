// GoldenPreprocess: every configuration under preprocess/, every resampled picture, and the pixels
// of every model's cases, here and in the bundled model.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/weights/safetensors.h"
#include "services/vision/image/image.h"
#include "services/vision/preprocess/preprocess.h"
#include "tests/services/vision/image/pictures.h"

namespace tessera::vision {
namespace {

using base::Json;

constexpr char kBundledModel[] = "models/shelf-vqa";
constexpr double kValueTolerance = 1e-5;  // goldens/README.md, `pixel_values`

// What later parts bring, by image_processor_type: refused by name at load until then.
const std::set<std::string>& LaterTypes() {
  static const std::set<std::string> types = {"Qwen2VLImageProcessor", "GotOcr2ImageProcessorFast",
                                              "LlavaNextImageProcessor"};
  return types;
}

Json ReadJsonOrDie(const std::string& path) {
  auto json = base::ReadJsonFile(path);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *std::move(json) : Json::object();
}

// JPEG may have been decoded by another library; everything else is equal to the byte.
int StepsAllowed(const std::string& name) { return absl::EndsWith(name, ".jpg") ? 1 : 0; }

// nullopt, with nothing reported, for a configuration that a later part brings.
std::optional<PreprocessConfig> LoadKnown(const std::string& directory) {
  auto config = PreprocessConfig::Load(directory);
  if (config.ok()) return *config;
  const std::string message(config.status().message());
  bool later = false;
  for (const std::string& type : LaterTypes()) {
    later = later || absl::StrContains(message, absl::StrCat("\"", type, "\""));
  }
  EXPECT_TRUE(later) << config.status();
  EXPECT_EQ(base::ReasonOf(config.status()), "MODEL_UNSUPPORTED") << config.status();
  std::printf("later: %s\n", directory.c_str());
  return std::nullopt;
}

Preprocessed PreprocessOrDie(const std::string& path, const PreprocessConfig& config) {
  auto result = Preprocess(DecodeOrDie(ReadFileOrDie(path)), config);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : Preprocessed();
}

// [height, width, 3] to [3, height, width].
std::vector<uint8_t> Planes(const RgbImage& image) {
  const size_t plane = static_cast<size_t>(image.width) * image.height;
  std::vector<uint8_t> planes(plane * 3);
  for (size_t i = 0; i < plane; ++i) {
    for (size_t c = 0; c < 3; ++c) planes[c * plane + i] = image.rgb[i * 3 + c];
  }
  return planes;
}

int LargestStep(const std::vector<uint8_t>& a, const uint8_t* b) {
  int largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(int{a[i]} - int{b[i]}));
  return largest;
}

void CheckPicture(const std::string& preprocess, const std::string& folder, const Json& picture,
                  const PreprocessConfig& config) {
  const std::string input = picture["input"].get<std::string>();
  SCOPED_TRACE(folder + " " + input);
  const Preprocessed result = PreprocessOrDie(preprocess + "/inputs/" + input, config);
  const RgbImage expected =
      DecodeOrDie(ReadFileOrDie(folder + "/" + picture["resized"].get<std::string>()));
  ASSERT_EQ(result.width, expected.width);
  ASSERT_EQ(result.height, expected.height);
  const std::vector<uint8_t> planes = Planes(expected);
  EXPECT_LE(LargestStep(result.u8, planes.data()), StepsAllowed(input));
  for (const Json& sample : picture["samples_chw"]) {
    const Json& at = sample["at"];
    const size_t index =
        (at[0].get<size_t>() * result.height + at[1].get<size_t>()) * result.width +
        at[2].get<size_t>();
    if (result.u8[index] != planes[index]) continue;  // a step that JPEG may differ by
    EXPECT_NEAR(result.pixel_values[index], sample["value"].get<double>(), kValueTolerance);
  }
}

TEST(GoldenPreprocess, TheDirectoryHasAKnownFolder) {
  const std::string goldens = GoldensDirectory();
  EXPECT_TRUE(FileExists(goldens + "/preprocess") || FileExists(goldens + "/models")) << goldens;
}

TEST(GoldenPreprocess, EveryKnownConfigurationGivesThePixelsOfItsProcessor) {
  const std::string preprocess = GoldensDirectory() + "/preprocess";
  int cases = 0;
  for (const std::string& name : DirectoriesIn(preprocess)) {
    const std::string folder = preprocess + "/" + name;
    if (!FileExists(folder + "/expected.json")) continue;
    const auto config = LoadKnown(folder);
    if (!config) continue;
    const int before = cases;
    const Json expected = ReadJsonOrDie(folder + "/expected.json");
    for (const Json& picture : expected["pictures"]) {
      CheckPicture(preprocess, folder, picture, *config);
      ++cases;
    }
    EXPECT_GT(cases, before) << folder << " has no pictures";
  }
  EXPECT_TRUE(cases > 0 || !FileExists(preprocess)) << "no known configuration in " << preprocess;
  std::printf("GoldenPreprocess: %d pictures of configurations\n", cases);
}

TEST(GoldenPreprocess, InputsDecodeToTheListedPixels) {
  const std::string preprocess = GoldensDirectory() + "/preprocess";
  if (!FileExists(preprocess + "/inputs.json")) return;
  const Json inputs = ReadJsonOrDie(preprocess + "/inputs.json");
  EXPECT_FALSE(inputs.empty());
  for (const auto& [name, input] : inputs.items()) {
    SCOPED_TRACE(name);
    const RgbImage image = DecodeOrDie(ReadFileOrDie(preprocess + "/inputs/" + name));
    EXPECT_EQ(image.width, input["rgb_size"][0].get<int>());
    EXPECT_EQ(image.height, input["rgb_size"][1].get<int>());
    if (StepsAllowed(name) == 0) {
      EXPECT_EQ(Sha256Hex(image), input["rgb_sha256"].get<std::string>());
    }
  }
}

RgbImage ResampleWhole(const RgbImage& in, int width, int height, Filter filter) {
  ResampleShape shape = {in.width, in.height, width, height, {0, width}, {0, height}};
  const auto row = [&in](int y) { return in.rgb.data() + int64_t{y} * in.width * 3; };
  return {width, height, Resample(row, shape, filter)};
}

TEST(GoldenPreprocess, ResamplingEqualsPillowToTheByte) {
  const std::map<std::string, Filter> filters = {{"lanczos", Filter::kLanczos},
                                                 {"bilinear", Filter::kBilinear},
                                                 {"bicubic", Filter::kBicubic}};
  const std::string folder = GoldensDirectory() + "/preprocess/resample";
  if (!FileExists(folder)) return;
  int cases = 0;
  const Json index = ReadJsonOrDie(folder + "/index.json");
  for (const Json& pair : index["cases"]) {
    const RgbImage in = DecodeOrDie(ReadFileOrDie(folder + "/" + pair["in"].get<std::string>()));
    const int width = pair["out_size"][0].get<int>();
    const int height = pair["out_size"][1].get<int>();
    for (const auto& [name, file] : pair["out"].items()) {
      SCOPED_TRACE(file.get<std::string>());
      ASSERT_TRUE(filters.count(name)) << "unknown filter";
      const RgbImage expected = DecodeOrDie(ReadFileOrDie(folder + "/" + file.get<std::string>()));
      const RgbImage out = ResampleWhole(in, width, height, filters.at(name));
      const auto difference = Compare(out, expected);
      ASSERT_TRUE(difference.has_value());
      EXPECT_EQ(difference->largest, 0);
      ++cases;
    }
  }
  EXPECT_GT(cases, 0) << "no cases in " << folder;
  std::printf("GoldenPreprocess: %d resampled pictures\n", cases);
}

using Tensors = std::map<std::string, TensorView>;

// Compares one picture of a case with the tensors that hold it; false when there are none.
bool CheckAgainst(const Tensors& tensors, const std::string& prefix, int index,
                  const std::string& picture, const Preprocessed& result) {
  bool checked = false;
  const size_t count = result.u8.size();
  const auto u8 = tensors.find(absl::StrCat(prefix, "pixels_u8.", index));
  const auto all_u8 = tensors.find(prefix + "pixels_u8");
  const uint8_t* expected = nullptr;
  if (u8 != tensors.end()) {
    EXPECT_EQ(u8->second.bytes(), count);
    expected = reinterpret_cast<const uint8_t*>(u8->second.data);
  } else if (all_u8 != tensors.end()) {
    expected = reinterpret_cast<const uint8_t*>(all_u8->second.data) + index * count;
  }
  if (expected != nullptr) {
    EXPECT_LE(LargestStep(result.u8, expected), StepsAllowed(picture));
    checked = true;
  }
  const auto values = tensors.find(prefix + "pixel_values");
  if (values == tensors.end()) return checked;
  const std::vector<float> floats = ToFloats(values->second);
  EXPECT_GE(floats.size(), (index + 1) * count);
  for (size_t i = 0; i < count; ++i) {
    if (expected != nullptr && expected[i] != result.u8[i]) continue;
    const float value = floats[index * count + i];
    if (std::abs(value - result.pixel_values[i]) > kValueTolerance) {
      ADD_FAILURE() << "value " << i << ": " << result.pixel_values[i] << ", expected " << value;
      break;
    }
  }
  return true;
}

void CheckInputs(const std::string& model, const Json& cases) {
  if (!cases.contains("inputs")) return;
  for (const auto& [name, input] : cases["inputs"].items()) {
    SCOPED_TRACE(model + " " + name);
    const RgbImage image = DecodeOrDie(ReadFileOrDie(model + "/inputs/" + name));
    EXPECT_EQ(image.width, input["rgb_size"][0].get<int>());
    EXPECT_EQ(image.height, input["rgb_size"][1].get<int>());
    if (StepsAllowed(name) == 0) {
      EXPECT_EQ(Sha256Hex(image), input["rgb_sha256"].get<std::string>());
    }
  }
}

int CheckModel(const std::string& model) {
  const Json cases = ReadJsonOrDie(model + "/expected/cases.json");
  CheckInputs(model, cases);
  const auto config = LoadKnown(model);
  if (!config) return 0;
  const std::string file = ReadFileOrDie(model + "/expected/tensors.safetensors");
  auto parsed = weights::ParseSafetensors(file);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok()) return 0;
  Tensors tensors;
  for (const auto& tensor : *parsed) tensors[tensor.name] = tensor.view;
  int checked = 0;
  const auto check = [&](const std::string& prefix, const Json& images) {
    for (size_t i = 0; i < images.size(); ++i) {
      const std::string name = images[i].get<std::string>();
      SCOPED_TRACE(model + " " + prefix + " " + name);
      const Preprocessed result = PreprocessOrDie(model + "/inputs/" + name, *config);
      checked += CheckAgainst(tensors, prefix, static_cast<int>(i), name, result) ? 1 : 0;
    }
  };
  if (cases.contains("cases")) {
    for (const Json& one : cases["cases"]) check(one["id"].get<std::string>() + ".", one["images"]);
  } else {
    check("", cases["images"]);
  }
  EXPECT_GT(checked, 0) << model << " has no pixels to compare";
  return checked;
}

TEST(GoldenPreprocess, PixelsOfEveryModelsCasesAreEqual) {
  const std::string models = GoldensDirectory() + "/models";
  int checked = 0;
  for (const std::string& name : DirectoriesIn(models)) checked += CheckModel(models + "/" + name);
  EXPECT_TRUE(checked > 0 || !FileExists(models)) << "no known model in " << models;
  checked += CheckModel(kBundledModel);
  std::printf("GoldenPreprocess: %d pictures of models\n", checked);
}

}  // namespace
}  // namespace tessera::vision
