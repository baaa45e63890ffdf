#pragma once

#include <utility>

#include "common/base/mutex.h"

namespace tessera::gateway {

// Knows how many calls still exist, so that what they use can outlive them. A client needs it, for
// a call's context holds its channel: were the last reference to a channel dropped on gRPC's own
// callback thread, gRPC would wait for that thread from that thread. Any thread.
class CallTracker {
 public:
  ~CallTracker() {
    base::MutexLock lock(mutex_);
    while (calls_ > 0) none_.Wait(mutex_);
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

}  // namespace tessera::gateway
