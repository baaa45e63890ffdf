#pragma once

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/bounded_queue.h"

namespace tessera::base {

// A few threads that run tasks in the order in which they came. Any thread may push.
class WorkerPool {
 public:
  // REQUIRES: threads >= 1.
  WorkerPool(int threads, size_t capacity);
  // Runs what was accepted, then joins.
  ~WorkerPool();

  // False, at once, when `capacity` tasks wait already.
  bool TryPush(std::function<void()> task) { return queue_.TryPush(std::move(task)); }

 private:
  BoundedQueue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::base
