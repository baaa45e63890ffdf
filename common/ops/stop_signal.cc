#include "common/ops/stop_signal.h"

#include <pthread.h>
#include <time.h>

namespace tessera::ops {

StopSignal::StopSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

bool StopSignal::Wait(absl::Duration timeout) {
  const timespec interval = absl::ToTimespec(timeout);
  if (sigtimedwait(&signals_, nullptr, &interval) < 0) return false;
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  return true;
}

}  // namespace tessera::ops
