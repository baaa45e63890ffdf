#include "common/weights/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WeightsTest : public ::testing::Test {
 protected:
  WeightsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weights_test.XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
  }
  ~WeightsTest() override { std::filesystem::remove_all(dir_); }

  std::string Path(const std::string& name) const { return absl::StrCat(dir_, "/", name); }

  void Write(const std::string& name, absl::string_view bytes) {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  // One U8 tensor of the given bytes.
  void WriteTensor(const std::string& file, const std::string& tensor, absl::string_view bytes) {
    const std::string header =
        absl::StrCat("{\"", tensor, "\":{\"dtype\":\"U8\",\"shape\":[", bytes.size(),
                     "],\"data_offsets\":[0,", bytes.size(), "]}}");
    std::string length;
    for (int i = 0; i < 8; ++i) length.push_back(static_cast<char>(header.size() >> (8 * i)));
    Write(file, absl::StrCat(length, header, bytes));
  }

  std::string dir_;
};

TEST_F(WeightsTest, OpensASingleFileOrTheShardsOfAnIndex) {
  EXPECT_EQ(base::ReasonOf(Weights::Open(dir_).status()), "WEIGHTS_MISSING");
  WriteTensor("a.safetensors", "a", "12");
  WriteTensor("b.safetensors", "b", "345");
  Write("model.safetensors.index.json",
        R"({"weight_map":{"b":"b.safetensors","a":"a.safetensors"}})");
  auto sharded = Weights::Open(dir_);
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  EXPECT_THAT((*sharded)->names(), ElementsAre("a", "b"));
  EXPECT_EQ((*sharded)->total_bytes(), 5u);
  EXPECT_EQ((*sharded)->Find("c"), nullptr);
  WriteTensor("model.safetensors", "single", "1");
  auto single = Weights::Open(dir_);
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_THAT((*single)->names(), ElementsAre("single"));
}

TEST_F(WeightsTest, DigestCoversNameBytesAndOrder) {
  WriteTensor("a", "a", "12");
  WriteTensor("same", "a", "12");
  WriteTensor("other_name", "b", "12");
  WriteTensor("other_bytes", "a", "13");
  const auto digest = [this](const std::string& file, const std::string& tensor) {
    auto weights = Weights::OpenFile(Path(file));
    EXPECT_TRUE(weights.ok()) << weights.status();
    return (*weights)->Digest({tensor});
  };
  EXPECT_EQ(digest("a", "a"), digest("same", "a"));
  EXPECT_NE(digest("a", "a"), digest("other_name", "b"));
  EXPECT_NE(digest("a", "a"), digest("other_bytes", "a"));
}

TEST_F(WeightsTest, ASketchTellsModelsApartByNameShapeAndEnds) {
  const std::string many(20'000, 'x');
  const auto sketch = [this](const std::string& tensor, const std::string& bytes) {
    WriteTensor("model.safetensors", tensor, bytes);
    auto weights = Weights::Open(dir_);
    EXPECT_TRUE(weights.ok()) << weights.status();
    return (*weights)->Sketch();
  };
  const base::Sha256Digest one = sketch("a", many);
  EXPECT_EQ(sketch("a", many), one);
  EXPECT_NE(sketch("b", many), one);
  EXPECT_NE(sketch("a", many + "xx"), one);
  EXPECT_NE(sketch("a", "y" + many.substr(1)), one);
  EXPECT_NE(sketch("a", many.substr(1) + "y"), one);
}

TEST_F(WeightsTest, NoticesAFileThatIsCutWhileMapped) {
  WriteTensor("model.safetensors", "a", std::string(10'000, 'x'));
  auto weights = Weights::Open(dir_);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_TRUE((*weights)->CheckUnchanged().ok());
  std::filesystem::resize_file(Path("model.safetensors"), 100);
  const absl::Status status = (*weights)->CheckUnchanged();
  EXPECT_EQ(base::ReasonOf(status), "WEIGHTS_CHANGED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.safetensors"));
}

TEST_F(WeightsTest, AFileReplacedByRenameKeepsServingTheOldBytes) {
  WriteTensor("model.safetensors", "a", "old");
  auto weights = Weights::Open(dir_);
  ASSERT_TRUE(weights.ok()) << weights.status();
  WriteTensor("new", "a", "new");
  std::filesystem::rename(Path("new"), Path("model.safetensors"));
  EXPECT_TRUE((*weights)->CheckUnchanged().ok());
  EXPECT_EQ((*weights)->Find("a")->data[0], std::byte{'o'});
}

TEST_F(WeightsTest, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(mkfifo(Path("model.safetensors").c_str(), 0600), 0);
  const absl::Status status = Weights::Open(dir_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a regular file"));
  EXPECT_EQ(Weights::OpenFile(dir_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Weights::OpenFile(Path("absent")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(WeightsTest, RefusesAnIndexThatNamesATensorTwice) {
  WriteTensor("a.safetensors", "a", "12");
  Write("model.safetensors.index.json",
        R"({"weight_map":{"a":"a.safetensors","\u0061":"a.safetensors"}})");
  EXPECT_THAT(std::string(Weights::Open(dir_).status().message()), HasSubstr("occurs twice"));
}

TEST(BundledModelTest, Opens) {
  auto weights = Weights::Open("models/shelf-vqa");
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_GT((*weights)->total_bytes(), 0u);
}

}  // namespace
}  // namespace tessera::weights
