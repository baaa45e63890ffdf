#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "common/base/bounded_queue.h"

namespace tessera::decode {

// A few threads that run tasks in the order in which they came. Any thread may push.
class WorkerThreads {
 public:
  // REQUIRES: threads >= 1.
  WorkerThreads(int threads, size_t capacity);
  // Runs what was accepted, then joins.
  ~WorkerThreads();

  // False, at once, when `capacity` tasks wait already.
  bool TryPush(std::function<void()> task) { return queue_.TryPush(std::move(task)); }

 private:
  base::BoundedQueue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::decode
