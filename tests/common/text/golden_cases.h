#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace tessera::text {

// $TESSERA_GOLDENS, or tests/goldens.
std::filesystem::path GoldenDir();

// Folders of `parent` in order of their names; none when it does not exist.
std::vector<std::filesystem::path> FoldersOf(const std::filesystem::path& parent);

// One JSON value per line; an empty list when the file does not exist.
std::vector<base::Json> ReadLines(const std::filesystem::path& path);

// What kind of tokenizer a folder holds: the model type of tokenizer.json, "BPE with </w>" when
// words have a suffix, or the kind of its only file.
std::string TokenizerType(const std::filesystem::path& folder);

std::vector<int32_t> Ids(const base::Json& value);

}  // namespace tessera::text
