#include "services/decode/worker_threads.h"

#include <optional>

namespace tessera::decode {

WorkerThreads::WorkerThreads(int threads, size_t capacity) : queue_(capacity) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      while (std::optional<std::function<void()>> task = queue_.Pop()) (*task)();
    });
  }
}

WorkerThreads::~WorkerThreads() {
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace tessera::decode
