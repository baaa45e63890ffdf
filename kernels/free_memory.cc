#include "kernels/free_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tessera::kernels {
namespace {

// The names of one version of cgroups.
struct CgroupFiles {
  const char* mount;
  const char* limit;
  const char* use;
  const char* droppable;  // its line in memory.stat
};
constexpr CgroupFiles kV2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"};
constexpr CgroupFiles kV1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                             "/memory.usage_in_bytes", "total_inactive_file"};

// The number that a file begins with; none for "max" or without the file.
std::optional<size_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  size_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

// The number behind `name` in a file of lines "name number ...".
std::optional<size_t> NumberAfter(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  for (std::string rest; file >> word; std::getline(file, rest)) {
    size_t number = 0;
    if (word == name && file >> number) return number;
  }
  return std::nullopt;
}

// What the cgroup in `directory` leaves.
size_t LeftIn(const std::string& directory, const CgroupFiles& files) {
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  const auto limit = NumberIn(absl::StrCat(directory, files.limit));
  const auto use = NumberIn(absl::StrCat(directory, files.use));
  if (!limit.has_value() || !use.has_value()) return kAll;
  const size_t droppable =
      NumberAfter(absl::StrCat(directory, "/memory.stat"), files.droppable).value_or(0);
  const size_t held = *use - std::min(*use, droppable);
  return *limit - std::min(*limit, held);
}

// The least that the cgroup `path` and those above it leave.
size_t LeftFrom(const std::string& root, std::string path, const CgroupFiles& files) {
  size_t left = std::numeric_limits<size_t>::max();
  for (;;) {
    left = std::min(left, LeftIn(absl::StrCat(root, files.mount, path), files));
    if (path.empty()) return left;
    path.resize(path.find_last_of('/'));
  }
}

// A line of /proc/self/cgroup: "0::/path", or "number:controllers:/path" of version 1.
size_t LeftByLine(const std::string& root, const std::string& line) {
  const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
  if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) {
    return std::numeric_limits<size_t>::max();
  }
  const std::string path = parts[2] == "/" ? "" : parts[2];
  if (parts[1].empty()) return LeftFrom(root, path, kV2);
  const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
  const bool memory = std::count(controllers.begin(), controllers.end(), "memory") > 0;
  return memory ? LeftFrom(root, path, kV1) : std::numeric_limits<size_t>::max();
}

}  // namespace

size_t FreeHostMemory(const std::string& root) {
  constexpr size_t kUnknown = std::numeric_limits<size_t>::max();
  size_t left = kUnknown;
  const auto kibibytes = NumberAfter(absl::StrCat(root, "/proc/meminfo"), "MemAvailable:");
  if (kibibytes.has_value()) left = *kibibytes * 1024;
  std::ifstream cgroups(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(cgroups, line);) {
    left = std::min(left, LeftByLine(root, line));
  }
  return left == kUnknown ? 0 : left;
}

}  // namespace tessera::kernels
