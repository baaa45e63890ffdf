#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tessera::base {

// Has files read again when they change. Any thread.
class FileWatch {
 public:
  // Made before the first read, which is the caller's. An empty path is no file. `what` they hold,
  // for the log, as in "the new keys are in use".
  FileWatch(std::vector<std::string> paths, std::string what);

  // Calls `read` where a file is another than at the last look, or where `read` failed then: what
  // passes, such as a want of descriptors or half a file, does not keep what is old in use. At most
  // once a second; returns at once where another thread is in here. Logs what came of `read`, the
  // same failure once for each change of the files.
  void Look(absl::Time now, absl::FunctionRef<absl::Status()> read);

 private:
  // Of one file: changes when it is written, may be read by others, or another takes its place.
  using Stamp = std::array<int64_t, 4>;
  static Stamp StampOf(const std::string& path);
  std::vector<Stamp> Stamps() const;

  const std::vector<std::string> paths_;
  const std::string what_;
  std::atomic<bool> looking_ = false;
  // Of the thread that looks.
  std::vector<Stamp> stamps_;
  absl::Status last_read_;
  absl::Time looked_ = absl::InfinitePast();
};

}  // namespace tessera::base
