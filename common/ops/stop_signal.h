#pragma once

#include <signal.h>

#include <atomic>
#include <thread>

#include "absl/time/time.h"

namespace tessera::ops {

// SIGTERM and SIGINT as something to wait for. Made before any thread starts, so that all inherit
// that they are blocked and only Wait sees them. One thread.
class StopSignal {
 public:
  StopSignal();

  // True once one has come: from then on a second one ends the process at once. False after
  // `timeout`.
  bool Wait(absl::Duration timeout);

  // While it lives, which is while a process loads, a signal ends the process at once with 0: there
  // is nothing to drain. Not beside Wait. REQUIRES: the StopSignal outlives it.
  class EndsProcess {
   public:
    explicit EndsProcess(const StopSignal& stop);
    ~EndsProcess();

   private:
    std::atomic<bool> ended_{false};
    std::thread thread_;
  };

 private:
  sigset_t signals_;
};

// What an end may take behind its drain.
inline constexpr absl::Duration kLongestEnd = absl::Seconds(30);
// Ends the process with exit code 1 and a line of the log if it lives after `limit`: for an end
// that waits for a device or a peer that hangs. Any thread, once.
void EndWithin(absl::Duration limit);

}  // namespace tessera::ops
