#pragma once

#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace tessera::rpc {

// Knows how many calls still exist, so that what they use can outlive them, and a server that ends
// can wait for their last words. A client needs it, for a call's context holds its channel: were
// the last reference to a channel dropped on gRPC's own callback thread, gRPC would wait for that
// thread from that thread. Any thread.
class CallTracker {
 public:
  ~CallTracker() {
    base::MutexLock lock(mutex_);
    while (calls_ > 0) none_.Wait(mutex_);
  }

  // False where some are left at `deadline`.
  bool AwaitNone(base::Clock& clock, absl::Time deadline) {
    base::MutexLock lock(mutex_);
    while (calls_ > 0 && clock.Now() < deadline) clock.WaitUntil(none_, mutex_, deadline);
    return calls_ == 0;
  }

  // One call. The first member of it, so that it goes last.
  class Token {
   public:
    explicit Token(CallTracker& tracker) : tracker_(tracker) {
      base::MutexLock lock(tracker_.mutex_);
      ++tracker_.calls_;
    }
    ~Token() {
      base::MutexLock lock(tracker_.mutex_);
      --tracker_.calls_;
      tracker_.none_.SignalAll();
    }
    Token(const Token&) = delete;
    Token& operator=(const Token&) = delete;

   private:
    CallTracker& tracker_;
  };

 private:
  base::Mutex mutex_;
  base::CondVar none_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::rpc
