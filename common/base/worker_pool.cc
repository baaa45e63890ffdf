#include "common/base/worker_pool.h"

#include "common/base/check.h"

namespace tessera::base {

WorkerPool::WorkerPool(int threads, size_t capacity) : queue_(capacity) {
  CHECK_GE(threads, 1);
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      while (auto task = queue_.Pop()) (*task)();
    });
  }
}

WorkerPool::~WorkerPool() {
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace tessera::base
