#include "common/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"

namespace tessera::weights {
namespace {

using ::testing::HasSubstr;

std::string File(absl::string_view header, absl::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(uint64_t{header.size()} >> (8 * i)));
  return absl::StrCat(file, header, data);
}

std::string RefusalOf(absl::string_view header, absl::string_view data) {
  const std::string file = File(header, data);
  const auto tensors = ParseSafetensors(file);
  EXPECT_FALSE(tensors.ok()) << header;
  EXPECT_EQ(base::ReasonOf(tensors.status()), "WEIGHTS_INVALID");
  return std::string(tensors.status().message());
}

TEST(SafetensorsTest, ReadsTensorsInTheOrderOfTheirData) {
  const std::string file = File(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}  )",
      "\x01\x3c\x05\x06");
  const auto tensors = ParseSafetensors(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ((*tensors)[1].view.data[1], std::byte{6});
}

TEST(SafetensorsTest, RefusesAPartialProductThatOverflowsThoughAnExtentIsZero) {
  EXPECT_THAT(
      RefusalOf(R"({"t":{"dtype":"U8","shape":[4611686018427387904,2,0],"data_offsets":[0,0]}})",
                ""),
      HasSubstr("tensor \"t\""));
}

TEST(SafetensorsTest, RefusesTextBehindANulInTheHeader) {
  const std::string header("{}\0{}", 5);
  EXPECT_THAT(RefusalOf(header, ""), HasSubstr("at byte 2"));
}

TEST(SafetensorsTest, NamesTheTensorThatIsWrong) {
  EXPECT_THAT(RefusalOf(R"({"w\n":{"dtype":"F32","shape":[1],"data_offsets":[0,5]}})", "12345"),
              HasSubstr(R"(tensor "w\n": F32[1] needs 4 bytes, data_offsets give 5)"));
  EXPECT_THAT(RefusalOf(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "123456"),
              HasSubstr("2 bytes at data offset 4 belong to no tensor"));
  EXPECT_THAT(RefusalOf(R"({"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", ""),
              HasSubstr("tensor \"w\": a dimension"));
}

TEST(SafetensorsTest, ClipsALongNameInItsMessage) {
  const std::string name(100'000, 'n');
  EXPECT_LT(RefusalOf(absl::StrCat("{\"", name, "\":1}"), "").size(), 400u);
}

TEST(SafetensorsTest, SaysWhatElseTheFileMayBe) {
  const auto message = [](absl::string_view file) {
    return std::string(ParseSafetensors(file).status().message());
  };
  EXPECT_THAT(message("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
              HasSubstr("Git LFS"));
  EXPECT_THAT(message("PK\x03\x04 and the rest of a zip archive"), HasSubstr("PyTorch"));
  EXPECT_THAT(message("GGUF and the rest"), HasSubstr("GGUF"));
}

// Whatever bytes change: the process lives, and an accepted file has tensors inside the file only.
TEST(SafetensorsTest, SurvivesSeededMutations) {
  const auto seed_file = base::ReadFile("tests/goldens/weights_bad/good_all_dtypes.safetensors");
  ASSERT_TRUE(seed_file.ok()) << seed_file.status();
  std::mt19937 random(20240611);
  const auto below = [&random](size_t n) { return random() % n; };
  constexpr absl::string_view kInteresting = "{}[]\",:0123456789-.eE\\u \xff\x80";
  int accepted = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string file = *seed_file;
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      const size_t at = below(file.size());
      switch (below(5)) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file[at] = kInteresting[below(kInteresting.size())];
          break;
        case 2:
          file.erase(at, 1 + below(8));
          break;
        case 3:
          file.insert(at, file.substr(below(file.size()), below(16)));
          break;
        default:
          file[at] ^= static_cast<char>(1 << below(8));
      }
      if (file.empty()) file = *seed_file;
    }
    const auto tensors = ParseSafetensors(file);
    if (!tensors.ok()) {
      ASSERT_EQ(base::ReasonOf(tensors.status()), "WEIGHTS_INVALID");
      continue;
    }
    ++accepted;
    const auto* begin = reinterpret_cast<const std::byte*>(file.data());
    for (const NamedTensor& tensor : *tensors) {
      ASSERT_GE(tensor.view.data, begin);
      ASSERT_LE(tensor.view.data + tensor.view.bytes(), begin + file.size());
    }
  }
  EXPECT_GT(accepted, 0);  // edits of names and data are harmless
}

}  // namespace
}  // namespace tessera::weights
