#include "common/base/compute_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "common/base/check.h"

namespace tessera::base {
namespace {

constexpr uint32_t kClosed = 0xffffffffu;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// CPUs of quota from a cgroup, or 0 where there is none.
double CgroupCpus() {
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2) {
    std::string quota;
    double period = 0;
    double microseconds = 0;
    if (v2 >> quota >> period && period > 0 && absl::SimpleAtod(quota, &microseconds)) {
      return std::isfinite(microseconds) ? microseconds / period : 0;
    }
    return 0;
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) {
    return quota / period;
  }
  return 0;
}

}  // namespace

int ComputePool::AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  const double quota = CgroupCpus();
  if (quota > 0) cpus = std::min(cpus, static_cast<int>(quota + 0.999));
  return std::max(cpus, 1);
}

ComputePool::ComputePool(int threads, int spin_microseconds)
#if defined(TESSERA_SANITIZED)
    : spin_microseconds_(0) {
  (void)spin_microseconds;
#else
    : spin_microseconds_(spin_microseconds) {
#endif
  CHECK_GE(threads, 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
}

ComputePool::~ComputePool() {
  {
    MutexLock lock(park_mutex_);
    stop_.store(true);
    wake_.SignalAll();
  }
  for (std::thread& worker : workers_) worker.join();
}

bool ComputePool::InsideBody() const {
  const std::thread::id self = std::this_thread::get_id();
  if (runner_.load(std::memory_order_relaxed) == self) return true;
  for (const std::thread& worker : workers_) {
    if (worker.get_id() == self) return true;
  }
  return false;
}

void ComputePool::RunTasks(int tasks, TaskFn fn, void* context) {
  MutexLock run_lock(run_mutex_);
  runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  // Close the last loop first: a thread that still looks at its ticket must not match it with the
  // new number of tasks and claim one that is not open yet.
  const uint64_t last = ticket_.load(std::memory_order_relaxed) >> 32;
  ticket_.store(last << 32 | kClosed, std::memory_order_relaxed);
  fn_.store(fn, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  tasks_.store(tasks, std::memory_order_release);  // whoever sees it sees the closed ticket
  pending_.store(tasks, std::memory_order_relaxed);
  const uint64_t generation = (last + 1) & 0xffffffffu;
  ticket_.store(generation << 32, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    MutexLock lock(park_mutex_);
    wake_.SignalAll();
  }
  TakeTasks(generation);
  AwaitTasks();
  runner_.store(std::thread::id(), std::memory_order_relaxed);
}

// The rest of the tasks is running on workers.
void ComputePool::AwaitTasks() {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(spin_microseconds_)) {
    for (int i = 0; i < 32; ++i) {
      if (pending_.load(std::memory_order_acquire) == 0) return;
      Pause();
    }
  }
  MutexLock lock(park_mutex_);
  runner_parked_.store(true, std::memory_order_seq_cst);
  while (pending_.load(std::memory_order_seq_cst) != 0) done_.Wait(park_mutex_);
  runner_parked_.store(false, std::memory_order_relaxed);
}

void ComputePool::TakeTasks(uint64_t generation) {
  while (true) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    uint32_t task;
    // Claim one task of exactly this loop: a thread that comes late fails the comparison.
    do {
      task = static_cast<uint32_t>(ticket);
      if ((ticket >> 32) != generation || task == kClosed ||
          static_cast<int>(task) >= tasks_.load(std::memory_order_acquire)) {
        return;
      }
    } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                            std::memory_order_acquire));
    const TaskFn fn = fn_.load(std::memory_order_relaxed);
    fn(context_.load(std::memory_order_relaxed), static_cast<int>(task));
    if (pending_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
        runner_parked_.load(std::memory_order_seq_cst)) {
      MutexLock lock(park_mutex_);
      done_.SignalAll();
    }
  }
}

bool ComputePool::AwaitGeneration(uint64_t seen) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(spin_microseconds_)) {
    for (int i = 0; i < 32; ++i) {
      if ((ticket_.load(std::memory_order_acquire) >> 32) != seen) return true;
      Pause();
    }
  }
  MutexLock lock(park_mutex_);
  parked_.fetch_add(1, std::memory_order_seq_cst);
  while ((ticket_.load(std::memory_order_seq_cst) >> 32) == seen && !stop_.load()) {
    wake_.Wait(park_mutex_);
  }
  parked_.fetch_sub(1, std::memory_order_seq_cst);
  return !stop_.load();
}

void ComputePool::Work() {
  uint64_t seen = 0;
  while (AwaitGeneration(seen)) {
    seen = ticket_.load(std::memory_order_acquire) >> 32;
    TakeTasks(seen);
  }
}

}  // namespace tessera::base
