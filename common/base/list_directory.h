#pragma once

#include <filesystem>
#include <vector>

namespace tessera::base {

// The entries of a directory, in no order; as many as can be read, none where it cannot be opened.
// Throws nothing, as std::filesystem's own loop over a directory does for one that it may open and
// not read.
std::vector<std::filesystem::path> ListDirectory(const std::filesystem::path& directory);

}  // namespace tessera::base
