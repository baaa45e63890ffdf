#include "tests/common/text/golden_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace tessera::text {

namespace fs = std::filesystem;

fs::path GoldenDir() {
  const char* dir = std::getenv("TESSERA_GOLDENS");
  return dir != nullptr && *dir != '\0' ? fs::path(dir) : fs::path("tests/goldens");
}

std::vector<fs::path> FoldersOf(const fs::path& parent) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<base::Json> ReadLines(const fs::path& path) {
  std::vector<base::Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    auto json = base::ParseJson(line);
    EXPECT_TRUE(json.ok()) << path << ": " << json.status();
    if (json.ok()) lines.push_back(*std::move(json));
  }
  return lines;
}

std::string TokenizerType(const fs::path& folder) {
  const fs::path file = folder / "tokenizer.json";
  if (!fs::exists(file)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".tiktoken") return "tiktoken";
      if (entry.path().filename() == "tokenizer.model") return "tokenizer.model";
    }
    return "none";
  }
  auto json = base::ReadJsonFile(file.string());
  EXPECT_TRUE(json.ok()) << json.status();
  if (!json.ok()) return "unreadable";
  const base::Json& model = (*json)["model"];
  const std::string type = model.value("type", "BPE");
  const auto suffix = model.find("end_of_word_suffix");
  const bool has_suffix = suffix != model.end() && suffix->is_string() && *suffix != "";
  return has_suffix ? type + " with </w>" : type;
}

std::vector<int32_t> Ids(const base::Json& value) { return value.get<std::vector<int32_t>>(); }

}  // namespace tessera::text
