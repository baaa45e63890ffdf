#include "common/base/file_watch.h"

#include <sys/stat.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera::base {

FileWatch::FileWatch(std::vector<std::string> paths, std::string what)
    : paths_(std::move(paths)), what_(std::move(what)), stamps_(Stamps()) {}

// Zeros where none can be seen.
FileWatch::Stamp FileWatch::StampOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return {};
  const auto nanoseconds = [](const timespec& time) {
    return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
  };
  return {nanoseconds(info.st_mtim), nanoseconds(info.st_ctim), static_cast<int64_t>(info.st_ino),
          info.st_size};
}

std::vector<FileWatch::Stamp> FileWatch::Stamps() const {
  std::vector<Stamp> stamps;
  for (const std::string& path : paths_) stamps.push_back(StampOf(path));
  return stamps;
}

void FileWatch::Look(absl::Time now, absl::FunctionRef<absl::Status()> read) {
  if (looking_.exchange(true)) return;
  const absl::Cleanup looked = [this] { looking_ = false; };
  if (now - looked_ < absl::Seconds(1)) return;
  looked_ = now;
  std::vector<Stamp> stamps = Stamps();
  const bool changed = stamps != stamps_;
  if (!changed && last_read_.ok()) return;
  stamps_ = std::move(stamps);
  const absl::Status before = std::exchange(last_read_, absl::UnknownError("did not return"));
  last_read_ = read();
  if (last_read_.ok()) {
    Log(LogLevel::kInfo, absl::StrCat("the new ", what_, " are in use"));
  } else if (changed || last_read_ != before) {
    Log(LogLevel::kError, absl::StrCat("the old ", what_, " stay in use: ", last_read_.message()));
  }
}

}  // namespace tessera::base
