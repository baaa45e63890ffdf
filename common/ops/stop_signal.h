#pragma once

#include <signal.h>

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

 private:
  sigset_t signals_;
};

}  // namespace tessera::ops
