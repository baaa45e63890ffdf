#pragma once

#include <atomic>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace tessera::gateway::http {

// How many connections there are. Any thread.
class ConnectionCount {
 public:
  void Add(int more);
  int value() const { return value_.load(); }
  // Waits until there is none, at most `timeout`.
  void AwaitNone(absl::Duration timeout);

 private:
  std::atomic<int> value_{0};
  base::Mutex mutex_;
  base::CondVar none_;
};

}  // namespace tessera::gateway::http
