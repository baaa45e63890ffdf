#pragma once

#include <atomic>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace tessera::base {

// Writes lines to a file, pipe or socket whose reader may have stopped reading: then lines are lost
// and counted, and nobody waits. Any thread.
class LineWriter {
 public:
  // `descriptor` stays the caller's. `patience`: how long the first line that finds no room waits
  // for the reader; later ones do not, until there is room again.
  LineWriter(int descriptor, absl::Duration patience)
      : descriptor_(descriptor), patience_(patience) {}

  // A line with its end, at most 4096 bytes, so that it is never torn. What was lost before is told
  // first, in a line of the log.
  void Write(absl::string_view line);
  // So far.
  int64_t lost() const { return lost_.load(); }

 private:
  bool HasRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WriteAll(absl::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int descriptor_;
  const absl::Duration patience_;
  Mutex mutex_;  // between the look whether there is room and the use of it
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t told_lost_ ABSL_GUARDED_BY(mutex_) = 0;  // lost lines that the log tells of
  std::atomic<int64_t> lost_{0};
};

}  // namespace tessera::base
