#include "common/base/list_directory.h"

#include <system_error>

namespace tessera::base {

std::vector<std::filesystem::path> ListDirectory(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  std::filesystem::directory_iterator at(directory, error);
  while (!error && at != std::filesystem::directory_iterator()) {
    entries.push_back(at->path());
    at.increment(error);
  }
  return entries;
}

}  // namespace tessera::base
