#include "tests/support/golden_case.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/tiny_models.h"

namespace tessera::testing {
namespace {

// Points TESSERA_GOLDENS elsewhere for one test.
class GoldensAt {
 public:
  explicit GoldensAt(const std::string& dir) {
    if (const char* old = std::getenv("TESSERA_GOLDENS")) old_ = old;
    setenv("TESSERA_GOLDENS", dir.c_str(), 1);
  }
  ~GoldensAt() {
    if (old_.empty()) {
      unsetenv("TESSERA_GOLDENS");
    } else {
      setenv("TESSERA_GOLDENS", old_.c_str(), 1);
    }
  }

 private:
  std::string old_;
};

void AddModel(const std::string& root, const std::string& name, const std::string& type) {
  const std::string dir = root + "/models/" + name;
  std::filesystem::create_directories(dir);
  WriteText(dir + "/config.json", "{\"model_type\": \"" + type + "\"}");
}

TEST(GoldenCaseTest, ASetWithNothingToRunIsAnError) {
  TempDir dir;
  const GoldensAt at(dir.path());
  EXPECT_FALSE(FindGoldenModels().ok()) << "no known folder";
  AddModel(dir.path(), "later", "qwen2_vl");
  EXPECT_FALSE(FindGoldenModels().ok()) << "only what comes later";
  AddModel(dir.path(), "odd", "llama4_vision");
  EXPECT_FALSE(FindGoldenModels().ok()) << "known to nobody";
}

TEST(GoldenCaseTest, ASetOfAnotherKindLeavesTheBundledModel) {
  TempDir dir;
  std::filesystem::create_directories(dir.path() + "/tokenizers");
  const GoldensAt at(dir.path());
  const auto models = FindGoldenModels();
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_EQ(models->size(), 1u);
  EXPECT_EQ((*models)[0].name, "shelf-vqa");
}

TEST(GoldenCaseTest, F16MayChooseOtherwiseOnlyWhereTheSoloRunIsNotSure) {
  const std::vector<int32_t> solo = {5, 6, 7};
  const std::vector<float> gaps = {1.0f, 0.19f, 1.0f};
  EXPECT_EQ(DifferenceF16({5, 6, 7}, solo, gaps), "");
  EXPECT_EQ(DifferenceF16({5, 9, 1}, solo, gaps), "");
  EXPECT_EQ(DifferenceF16({5}, solo, gaps), "") << "stopped at the unsure step";
  EXPECT_NE(DifferenceF16({4, 6, 7}, solo, gaps), "");
  EXPECT_NE(DifferenceF16({5, 6, 8}, solo, gaps), "");
  EXPECT_NE(DifferenceF16({5, 6}, solo, gaps), "");
  EXPECT_NE(DifferenceF16({5, 6, 7, 8}, solo, gaps), "");
}

}  // namespace
}  // namespace tessera::testing
