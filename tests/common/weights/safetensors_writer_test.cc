#include "common/weights/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/base/json.h"
#include "tests/support/tiny_models.h"

namespace tessera::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string BytesOf(const TensorView& view) {
  return std::string(reinterpret_cast<const char*>(view.data), view.bytes());
}

TEST(SafetensorsWriterTest, TheReaderTakesWhatTheWriterGives) {
  const float floats[] = {1, -2.5f, 3};
  const int32_t ints[] = {-1, 7};
  const char bytes[] = "abc";
  const std::vector<NamedTensor> tensors = {
      {"picture", {DType::kU8, {3}, reinterpret_cast<const std::byte*>(bytes)}},
      {"ro\"ws\n", {DType::kF32, {1, 3}, reinterpret_cast<const std::byte*>(floats)}},
      {"none", {DType::kF16, {0, 4}, nullptr}},
      {"scalar", {DType::kI32, {}, reinterpret_cast<const std::byte*>(ints + 1)}},
      {"ids", {DType::kI32, {2}, reinterpret_cast<const std::byte*>(ints)}}};
  const std::string file = SafetensorsBytes(tensors, {{"format", "1"}, {"é", "\xF0\x9F\x99\x82"}});
  const auto read = ParseSafetensors(file);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), tensors.size());
  for (const NamedTensor& tensor : tensors) {
    const auto found = std::find_if(read->begin(), read->end(),
                                    [&](const auto& other) { return other.name == tensor.name; });
    ASSERT_NE(found, read->end()) << tensor.name;
    EXPECT_EQ(found->view.dtype, tensor.view.dtype);
    EXPECT_EQ(found->view.shape, tensor.view.shape);
    EXPECT_EQ(BytesOf(found->view), BytesOf(tensor.view)) << tensor.name;
  }
  EXPECT_EQ((read->front().view.data - reinterpret_cast<const std::byte*>(file.data())) % 8, 0);
  EXPECT_THAT(*ParseMetadata(file),
              ElementsAre(Pair("format", "1"), Pair("é", "\xF0\x9F\x99\x82")));
}

TEST(SafetensorsWriterTest, NoTensorsAndNoMetadataAreAFileToo) {
  const std::string file = SafetensorsBytes({});
  EXPECT_THAT(*ParseSafetensors(file), IsEmpty());
  EXPECT_THAT(*ParseMetadata(file), IsEmpty());
  EXPECT_FALSE(ParseMetadata("no file").ok());
}

TEST(SafetensorsWriterTest, AFileIsReplacedWhole) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/file";
  EXPECT_TRUE(ReplaceFile(path, "one").ok());
  EXPECT_TRUE(ReplaceFile(path, std::string("t\0o", 3)).ok());
  EXPECT_EQ(*base::ReadFile(path), std::string("t\0o", 3));
  EXPECT_FALSE(base::ReadFile(path + ".new").ok());
  const absl::Status status = ReplaceFile(dir.path() + "/nowhere/file", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("/nowhere/file"));
}

}  // namespace
}  // namespace tessera::weights
