#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "common/base/mutex.h"

namespace tessera::base {

// Threads that share one parallel loop at a time. One pool per process, shared by its backends.
// Run may be called from any thread: callers take turns. A Run inside a body of the same pool does
// its tasks on the calling thread alone. Allocates nothing after construction.
class ComputePool {
 public:
  // `threads` >= 1, the caller of Run counted in. Waiters spin up to `spin_microseconds`, then
  // park.
  explicit ComputePool(int threads, int spin_microseconds = 50);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task) once for every task in [0, tasks), from up to threads() threads, and returns
  // when all are done. Which thread runs which task is not fixed: a task must not depend on it.
  template <typename Body>
  void Run(int tasks, Body&& body) {
    if (tasks <= 0) return;
    if (tasks == 1 || workers_.empty() || InsideBody()) {
      for (int task = 0; task < tasks; ++task) body(task);
      return;
    }
    RunTasks(
        tasks,
        [](void* context, int task) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(task);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // CPUs this process may use: the cgroup's quota (v2 or v1) rounded up, at most its affinity.
  static int AvailableCpus();

 private:
  using TaskFn = void (*)(void* context, int task);
  bool InsideBody() const;
  void RunTasks(int tasks, TaskFn fn, void* context);
  void AwaitTasks();
  void Work();
  void TakeTasks(uint64_t generation);
  bool AwaitGeneration(uint64_t seen);

  const int spin_microseconds_;
  Mutex run_mutex_;                        // one loop at a time
  std::atomic<std::thread::id> runner_{};  // the thread inside RunTasks

  // Written by the caller of Run before `ticket_` opens the loop, read by workers after it.
  std::atomic<TaskFn> fn_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int> tasks_{0};
  // High 32 bits: generation of the loop; low 32 bits: next task, or kClosed between loops.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<int> pending_{0};  // tasks not finished
  std::atomic<bool> stop_{false};

  Mutex park_mutex_;
  CondVar wake_;
  std::atomic<int> parked_{0};  // workers in wake_
  CondVar done_;
  std::atomic<bool> runner_parked_{false};  // the caller of Run in done_
  std::vector<std::thread> workers_;
};

}  // namespace tessera::base
