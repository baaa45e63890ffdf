#include "common/base/compute_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "common/base/check.h"

namespace tessera::base {
namespace {

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
    if (v2 >> quota >> period && quota != "max" && period > 0) return std::stod(quota) / period;
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

void ComputePool::RunTasks(int tasks, TaskFn fn, void* context) {
  MutexLock run_lock(run_mutex_);
  // Nobody holds a ticket of the last loop any more: pending_ went to 0 only after its last task.
  fn_.store(fn, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  tasks_.store(tasks, std::memory_order_relaxed);
  pending_.store(tasks, std::memory_order_relaxed);
  const uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(generation << 32, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    MutexLock lock(park_mutex_);
    wake_.SignalAll();
  }
  TakeTasks(generation);
  // The rest is running on workers: tasks are short, so this thread keeps its place.
  const auto start = std::chrono::steady_clock::now();
  while (pending_.load(std::memory_order_acquire) != 0) {
    Pause();
    if (std::chrono::steady_clock::now() - start >
        std::chrono::microseconds(spin_microseconds_)) {
      std::this_thread::yield();
    }
  }
}

void ComputePool::TakeTasks(uint64_t generation) {
  while (true) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    // Claim one task of exactly this loop: a thread that comes late fails the comparison.
    do {
      if ((ticket >> 32) != generation ||
          static_cast<int>(ticket & 0xffffffffu) >= tasks_.load(std::memory_order_relaxed)) {
        return;
      }
    } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel));
    const TaskFn fn = fn_.load(std::memory_order_relaxed);
    fn(context_.load(std::memory_order_relaxed), static_cast<int>(ticket & 0xffffffffu));
    pending_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

bool ComputePool::AwaitGeneration(uint64_t seen) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start <
         std::chrono::microseconds(spin_microseconds_)) {
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
