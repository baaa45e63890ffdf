#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/text/tokenizer.h"
#include "tests/common/text/golden_cases.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;

// Types that the loader refuses today, by name. This list only shrinks.
const std::set<std::string> kLater = {"Unigram", "WordPiece", "BPE with </w>", "tiktoken"};

std::vector<int32_t> EncodeText(const Tokenizer& tokenizer, const std::string& text,
                                bool parse_special = true) {
  EncodeOptions options;
  options.parse_special = parse_special;
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : std::vector<int32_t>{};
}

void CheckPieces(const Tokenizer& tokenizer, const base::Json& row, const char* context_key) {
  std::vector<int32_t> context;
  if (row.contains(context_key)) context = Ids(row[context_key]);
  StreamDecoder stream(tokenizer, context);
  std::vector<std::string> pieces;
  for (const int32_t id : Ids(row["ids"])) {
    pieces.push_back(stream.Add(id));
    EXPECT_TRUE(ValidateUtf8(pieces.back()).ok());
  }
  EXPECT_EQ(pieces, row["pieces"].get<std::vector<std::string>>());
  EXPECT_EQ(stream.Flush(), row.value("flush", ""));
}

void CheckCase(const Tokenizer& tokenizer, const base::Json& row) {
  const std::string text = row["text"];
  const std::vector<int32_t> ids = Ids(row["ids"]);
  EXPECT_EQ(EncodeText(tokenizer, text), ids);
  EXPECT_EQ(tokenizer.AddSpecial(ids), Ids(row["ids_special"]));
  EXPECT_EQ(EncodeText(tokenizer, text, /*parse_special=*/false),
            row.contains("ids_no_parse") ? Ids(row["ids_no_parse"]) : ids);
  const std::string decoded = row["decoded"];
  EXPECT_EQ(tokenizer.Decode(ids, /*skip_special=*/true), decoded);
  EXPECT_EQ(tokenizer.Decode(ids, /*skip_special=*/false), row.value("decoded_all", decoded));
  CheckPieces(tokenizer, row, "");
}

void CheckLongCase(const Tokenizer& tokenizer, const base::Json& row) {
  std::string text;
  for (int i = 0; i < row["text_times"].get<int>(); ++i) text += row["text_unit"];
  const base::Json& expected = row["ids"];
  std::vector<int32_t> ids = Ids(expected["head"]);
  const std::vector<int32_t> unit = Ids(expected["unit"]), tail = Ids(expected["tail"]);
  for (int i = 0; i < expected["times"].get<int>(); ++i) {
    ids.insert(ids.end(), unit.begin(), unit.end());
  }
  ids.insert(ids.end(), tail.begin(), tail.end());
  ASSERT_EQ(ids.size(), row["ids_count"].get<size_t>());
  EXPECT_TRUE(EncodeText(tokenizer, text) == ids);  // too long to print
}

void CheckStreamCase(const Tokenizer& tokenizer, const base::Json& row) {
  CheckPieces(tokenizer, row, "context_ids");
  const std::vector<int32_t> ids = Ids(row["ids"]);
  if (row.contains("decoded")) {
    EXPECT_EQ(tokenizer.Decode(ids, true), row["decoded"]);
  }
  if (row.contains("decoded_with_context")) {
    std::vector<int32_t> all = Ids(row["context_ids"]);
    all.insert(all.end(), ids.begin(), ids.end());
    EXPECT_EQ(tokenizer.Decode(all, true), row["decoded_with_context"]);
  }
}

void CheckInvalid(const Tokenizer& tokenizer, const base::Json& row) {
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(row["bytes_base64"].get<std::string>(), &bytes));
  const auto ids = tokenizer.Encode(bytes, {});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ids.status().message()),
              ::testing::HasSubstr(absl::StrCat("offset ", row["first_bad_byte"].get<int>(), " ")));
}

void CheckModelCase(const Tokenizer& tokenizer, const base::Json& row) {
  const std::vector<int32_t> ids = Ids(row["ids"]);
  EXPECT_EQ(EncodeText(tokenizer, row["text"]), ids);
  EXPECT_EQ(tokenizer.AddSpecial(ids), Ids(row["ids_with_special"]));
  EXPECT_EQ(tokenizer.Decode(ids, false), row["decoded"]);
  EXPECT_EQ(tokenizer.Decode(ids, true), row["decoded_skip_special"]);
}

// nullptr for a type of kLater, which must be refused by name.
std::unique_ptr<Tokenizer> LoadFolder(const fs::path& folder) {
  const std::string type = TokenizerType(folder);
  auto tokenizer = Tokenizer::Load(folder.string());
  if (kLater.count(type) != 0) {
    std::printf("  %s: %s, later\n", folder.c_str(), type.c_str());
    EXPECT_EQ(base::ReasonOf(tokenizer.status()), "UNSUPPORTED_TOKENIZER") << tokenizer.status();
    return nullptr;
  }
  EXPECT_TRUE(tokenizer.ok()) << folder << " (" << type << "): " << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

using CheckFn = void (*)(const Tokenizer&, const base::Json&);

int RunRows(const Tokenizer& tokenizer, const std::vector<base::Json>& rows, CheckFn check) {
  for (const base::Json& row : rows) {
    SCOPED_TRACE(row.value("name", row.value("text", "").substr(0, 60)));
    check(tokenizer, row);
  }
  return static_cast<int>(rows.size());
}

TEST(GoldenTokenizers, EveryTokenizerFolderEqualsTheLibrary) {
  const fs::path root = GoldenDir() / "tokenizers";
  const std::vector<base::Json> invalid = ReadLines(root / "invalid_utf8.jsonl");
  int cases = 0, folders = 0;
  for (const fs::path& folder : FoldersOf(root)) {
    SCOPED_TRACE(folder.string());
    const auto tokenizer = LoadFolder(folder);
    if (tokenizer == nullptr) continue;
    const int before = cases;
    cases += RunRows(*tokenizer, ReadLines(folder / "cases.jsonl"), CheckCase);
    cases += RunRows(*tokenizer, ReadLines(folder / "long_cases.jsonl"), CheckLongCase);
    cases += RunRows(*tokenizer, ReadLines(folder / "stream_cases.jsonl"), CheckStreamCase);
    EXPECT_GT(cases, before) << "no case in " << folder;
    cases += RunRows(*tokenizer, invalid, CheckInvalid);
    ++folders;
  }
  std::printf("GoldenTokenizers: %d cases in %d folders of %s\n", cases, folders, root.c_str());
  EXPECT_GT(cases, 0);
}

TEST(GoldenTokenizers, EveryModelFolderEqualsTheLibrary) {
  std::vector<fs::path> folders = FoldersOf(GoldenDir() / "models");
  const std::vector<fs::path> bundled = FoldersOf("models");
  folders.insert(folders.end(), bundled.begin(), bundled.end());
  int cases = 0, loaded = 0;
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder.string());
    const auto tokenizer = LoadFolder(folder);
    if (tokenizer == nullptr) continue;
    ++loaded;
    const fs::path file = folder / "expected" / "tokenizer_cases.json";
    if (!fs::exists(file)) continue;
    const auto rows = base::ReadJsonFile(file.string());
    ASSERT_TRUE(rows.ok()) << rows.status();
    cases +=
        RunRows(*tokenizer, std::vector<base::Json>(rows->begin(), rows->end()), CheckModelCase);
  }
  std::printf("GoldenTokenizers: %d cases, %d model folders\n", cases, loaded);
  EXPECT_GT(cases, 0);
}

}  // namespace
}  // namespace tessera::text
