#include "tools/load/server_memory.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/list_directory.h"

namespace tessera::tools {
namespace {

// The inode of the socket that listens on `port`, by /proc/net/tcp (proc(5)): local address in hex,
// state 0A is LISTEN, the tenth field is the inode.
std::string ListeningInode(const std::string& table, int port) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // titles
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
        timeout >> inode;
    const size_t colon = local.rfind(':');
    uint32_t number = 0;
    if (state != "0A" || colon == std::string::npos) continue;
    if (!absl::SimpleHexAtoi(local.substr(colon + 1), &number)) continue;
    if (number == static_cast<uint32_t>(port)) return inode;
  }
  return "";
}

bool Holds(const std::filesystem::path& process, const std::string& link) {
  for (const std::filesystem::path& entry : base::ListDirectory(process / "fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry, error) == link) return true;
  }
  return false;
}

}  // namespace

std::optional<int> ProcessAtPort(int port) {
  std::string inode = ListeningInode("/proc/net/tcp", port);
  if (inode.empty()) inode = ListeningInode("/proc/net/tcp6", port);
  if (inode.empty()) return std::nullopt;
  const std::string link = absl::StrCat("socket:[", inode, "]");
  for (const std::filesystem::path& entry : base::ListDirectory("/proc")) {
    int process = 0;
    if (!absl::SimpleAtoi(entry.filename().string(), &process)) continue;
    if (Holds(entry, link)) return process;
  }
  return std::nullopt;
}

std::optional<int64_t> PeakMemory(int process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/status"));
  std::string key, unit;
  int64_t kilobytes = 0;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    if (fields >> key >> kilobytes >> unit && key == "VmHWM:") return kilobytes * 1024;
  }
  return std::nullopt;
}

}  // namespace tessera::tools
