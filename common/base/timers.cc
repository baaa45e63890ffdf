#include "common/base/timers.h"

namespace tessera::base {

Timers::Timers(Clock& clock) : clock_(clock), thread_([this] { Run(); }) {}

Timers::~Timers() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

Timers::Id Timers::At(absl::Time due, std::function<void()> run) {
  MutexLock lock(mutex_);
  const Id id = ++last_;
  const auto [place, added] = due_.emplace(Due(due, id), std::move(run));
  times_.emplace(id, due);
  if (place == due_.begin()) changed_.SignalAll();
  return id;
}

void Timers::Cancel(Id id) {
  std::function<void()> dropped;  // goes without the lock
  MutexLock lock(mutex_);
  const auto time = times_.find(id);
  if (time == times_.end()) return;
  const auto found = due_.find(Due(time->second, id));
  dropped = std::move(found->second);
  due_.erase(found);
  times_.erase(time);
}

void Timers::Run() {
  while (true) {
    std::function<void()> run;
    {
      MutexLock lock(mutex_);
      if (stop_) return;
      const absl::Time next = due_.empty() ? absl::InfiniteFuture() : due_.begin()->first.first;
      if (next > clock_.Now()) {
        clock_.WaitUntil(changed_, mutex_, next);
        continue;
      }
      run = std::move(due_.begin()->second);
      times_.erase(due_.begin()->first.second);
      due_.erase(due_.begin());
    }
    run();
  }
}

}  // namespace tessera::base
