#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace tessera::base {

// A call that may take very long and that nobody can end, such as one of the system's resolver: it
// runs on a thread of its own that nobody waits for, not even the destructor. One thread calls
// Begin and Await; Cancel is for any.
template <typename Result>
class DetachedCall {
 public:
  // `call` may run, and have its result dropped, after this object is gone.
  explicit DetachedCall(std::function<Result()> call) : state_(std::make_shared<State>()) {
    state_->call = std::move(call);
  }
  ~DetachedCall() { Cancel(); }
  DetachedCall(const DetachedCall&) = delete;
  DetachedCall& operator=(const DetachedCall&) = delete;

  // Starts it, unless it runs, has a result that nobody took, or was cancelled. UNAVAILABLE where
  // no thread can be had.
  absl::Status Begin() {
    {
      MutexLock lock(state_->mutex);
      if (state_->running || state_->cancelled || state_->result.has_value()) {
        return absl::OkStatus();
      }
      state_->running = true;
    }
    try {
      std::thread([state = state_] {
        Result result = state->call();
        MutexLock lock(state->mutex);
        state->running = false;
        state->result = std::move(result);
        state->changed.SignalAll();
      }).detach();
    } catch (const std::system_error& error) {
      MutexLock lock(state_->mutex);
      state_->running = false;
      return absl::UnavailableError(error.what());
    }
    return absl::OkStatus();
  }

  // The result of what was begun, once. Empty: none within `timeout`, it goes on and a later Await
  // has it; or cancelled.
  std::optional<Result> Await(absl::Duration timeout) {
    const absl::Time deadline = RealClock().Now() + timeout;
    MutexLock lock(state_->mutex);
    while (!state_->result.has_value() && !state_->cancelled) {
      const absl::Duration left = deadline - RealClock().Now();
      if (left <= absl::ZeroDuration()) break;
      state_->changed.WaitFor(state_->mutex, left);
    }
    return std::exchange(state_->result, std::nullopt);
  }

  // Ends an Await that waits, and those to come.
  void Cancel() {
    MutexLock lock(state_->mutex);
    state_->cancelled = true;
    state_->changed.SignalAll();
  }
  bool cancelled() const {
    MutexLock lock(state_->mutex);
    return state_->cancelled;
  }

 private:
  struct State {
    std::function<Result()> call;
    Mutex mutex;
    CondVar changed;
    bool running ABSL_GUARDED_BY(mutex) = false;
    bool cancelled ABSL_GUARDED_BY(mutex) = false;
    std::optional<Result> result ABSL_GUARDED_BY(mutex);
  };

  const std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace tessera::base
