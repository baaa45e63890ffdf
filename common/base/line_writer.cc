#include "common/base/line_writer.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "absl/time/clock.h"
#include "common/base/log_line.h"

namespace tessera::base {

// A pipe that can be written to has room for a page, and a socket for more: a line of 4096 bytes
// does not wait there. Files and terminals always can.
bool LineWriter::HasRoom() {
  pollfd look = {.fd = descriptor_, .events = POLLOUT, .revents = 0};
  const int patience = stalled_ ? 0 : static_cast<int>(absl::ToInt64Milliseconds(patience_));
  const int ready = poll(&look, 1, patience);
  stalled_ = ready == 0 || (ready < 0 && errno != EINTR);
  return ready > 0;
}

// False: there is nobody to tell.
bool LineWriter::WriteAll(absl::string_view line) {
  while (!line.empty()) {
    const ssize_t written = write(descriptor_, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    line.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void LineWriter::Write(absl::string_view line) {
  MutexLock lock(mutex_);
  bool room = HasRoom();
  if (const int64_t untold = lost_.load() - told_lost_; room && untold > 0) {
    told_lost_ += untold;
    WriteAll(LogLine(absl::Now(), LogLevel::kWarning, "lines of this log were lost: nobody read it",
                     {{"lines", untold}}));
    room = HasRoom();
  }
  if (!room || !WriteAll(line)) ++lost_;
}

}  // namespace tessera::base
