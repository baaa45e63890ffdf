#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace tessera::rpc {

// Changes when the file is written, or another takes its place; zeros where none can be seen.
using FileStamp = std::array<int64_t, 4>;
FileStamp StampOf(const std::string& path);

}  // namespace tessera::rpc
