#include "common/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/base/error.h"
#include "tests/common/text/tiny_tokenizer.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;

class TokenizerDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) /
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
  }
  fs::path dir_;
};

TEST(TokenizerTest, TableAnswersBothWays) {
  base::Json file = TinyByteLevel({"a b"});
  const int32_t end = AddToken("<end>", {}, &file);
  AddToken("<tool>", {{"special", false}}, &file);
  const auto tokenizer = Make(file);
  EXPECT_EQ(tokenizer->IdOf("ab"), 256);
  EXPECT_EQ(tokenizer->IdOf("<end>"), end);
  EXPECT_EQ(tokenizer->IdOf("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->TokenOf(end), "<end>");
  EXPECT_EQ(tokenizer->TokenOf(-1), "");
  EXPECT_EQ(tokenizer->special_ids(), std::vector<int32_t>{end});
  EXPECT_EQ(tokenizer->added_tokens().size(), 2);
  EXPECT_EQ(tokenizer->vocab_size(), 259);
}

TEST(TokenizerTest, PostProcessorsAddTheirTokensAroundOneSequence) {
  base::Json file = TinyMetaspace();
  EXPECT_EQ(Make(file)->AddSpecial({7}), std::vector<int32_t>{7});
  file["post_processor"] = {
      {"type", "RobertaProcessing"}, {"cls", {"<s>", 1}}, {"sep", {"</s>", 2}}};
  EXPECT_EQ(Make(file)->AddSpecial({7}), (std::vector<int32_t>{1, 7, 2}));
  file["post_processor"] = base::Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel"}, {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
       "special_tokens": {"<s>": {"id": "<s>", "ids": [1, 1], "tokens": ["<s>", "<s>"]}}}]})");
  EXPECT_EQ(Make(file)->AddSpecial({7}), (std::vector<int32_t>{1, 1, 7}));
}

TEST(TokenizerTest, DigitsAndSplitsCutBeforeMerges) {
  base::Json file = TinyByteLevel({"1 2", "a b", "ab ab"});
  file["pre_tokenizer"] = base::Json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Digits", "individual_digits": true},
      {"type": "Split", "pattern": {"String": "ab"}, "behavior": "Isolated"},
      {"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}]})");
  const auto tokenizer = Make(file);
  // Each part gets its own space, the digits stay apart, and no merge crosses a cut.
  EXPECT_EQ(Encode(*tokenizer, "12abab"),
            (std::vector<int32_t>{' ', '1', ' ', '2', ' ', 257, ' ', 257}));
}

TEST(TokenizerTest, TextBeyondTheLimitIsRefused) {
  const auto tokenizer = Make(TinyByteLevel());
  const auto ids = tokenizer->Encode(std::string((64 << 20) + 1, 'a'), {});
  EXPECT_EQ(base::ReasonOf(ids.status()), "TEXT_TOO_LONG");
}

TEST_F(TokenizerDirTest, TokensOfTheConfigAreAddedToThoseOfTheFile) {
  Write("tokenizer.json", TinyByteLevel().dump());
  Write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"256": {"content": "<image>", "special": true}}})");
  const auto tokenizer = Tokenizer::Load(dir_.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(Encode(**tokenizer, "<image>"), std::vector<int32_t>{256});
  Write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"97": {"content": "<image>", "special": true}}})");
  EXPECT_EQ(base::ReasonOf(Tokenizer::Load(dir_.string()).status()), "BAD_TOKENIZER");
}

TEST_F(TokenizerDirTest, AFolderWithAnotherTokenizerIsRefusedByItsName) {
  EXPECT_EQ(Tokenizer::Load(dir_.string()).status().code(), absl::StatusCode::kNotFound);
  Write("tokenizer.model", "x");
  const absl::Status status = Tokenizer::Load(dir_.string()).status();
  EXPECT_EQ(base::ReasonOf(status), "UNSUPPORTED_TOKENIZER");
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("tokenizer.model"));
}

TEST_F(TokenizerDirTest, ErrorsNameTheFile) {
  Write("tokenizer.json", "{");
  const absl::Status syntax = Tokenizer::Load(dir_.string()).status();
  EXPECT_EQ(base::ReasonOf(syntax), "BAD_TOKENIZER");
  EXPECT_THAT(std::string(syntax.message()),
              ::testing::HasSubstr((dir_ / "tokenizer.json").string()));
  Write("tokenizer.json", "{}");
  const absl::Status status = Tokenizer::Load(dir_.string()).status();
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("model: is missing"));
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr((dir_ / "tokenizer.json").string()));
}

}  // namespace
}  // namespace tessera::text
