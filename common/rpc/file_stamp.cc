#include "common/rpc/file_stamp.h"

#include <sys/stat.h>

namespace tessera::rpc {

FileStamp StampOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return {};
  const auto nanoseconds = [](const timespec& time) {
    return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
  };
  return {nanoseconds(info.st_mtim), nanoseconds(info.st_ctim), static_cast<int64_t>(info.st_ino),
          info.st_size};
}

}  // namespace tessera::rpc
