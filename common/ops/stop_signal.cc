#include "common/ops/stop_signal.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"

namespace tessera::ops {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(20);

// The kernel lets no signal end the first process of a container by default.
void EndAtOnce(int signal) {
  raise(signal);  // as the shell that waits expects it; SA_RESETHAND made it the default
  _exit(128 + signal);
}

}  // namespace

StopSignal::StopSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

bool StopSignal::Wait(absl::Duration timeout) {
  const timespec interval = absl::ToTimespec(timeout);
  if (sigtimedwait(&signals_, nullptr, &interval) < 0) return false;
  struct sigaction action = {};
  action.sa_handler = EndAtOnce;
  action.sa_flags = SA_RESETHAND | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  return true;
}

StopSignal::EndsProcess::EndsProcess(const StopSignal& stop) {
  thread_ = std::thread([this, signals = stop.signals_] {
    const timespec interval = absl::ToTimespec(kLook);
    while (!ended_.load()) {
      if (sigtimedwait(&signals, nullptr, &interval) < 0) continue;
      std::cout << "stopped before it was ready" << std::endl;
      _exit(0);
    }
  });
}

StopSignal::EndsProcess::~EndsProcess() {
  ended_ = true;
  thread_.join();
}

void EndWithin(absl::Duration limit) {
  std::thread([limit] {
    absl::SleepFor(limit);
    base::Log(
        base::LogLevel::kError,
        absl::StrCat("the end of this process was not reached within ", absl::FormatDuration(limit),
                     ": a device, a peer or a resolver hangs; it ends at once"));
    _exit(1);
  }).detach();
}

}  // namespace tessera::ops
