#include "services/decode/engine/request_queue.h"

#include <utility>

namespace tessera::decode {

bool RequestQueue::Push(EngineMessage message) {
  base::MutexLock lock(mutex_);
  if (closed_) return false;
  messages_.push_back(std::move(message));
  changed_.Signal();
  return true;
}

bool RequestQueue::Take(std::vector<EngineMessage>& out, absl::Time until) {
  out.clear();
  base::MutexLock lock(mutex_);
  while (messages_.empty() && !closed_ && until != absl::InfinitePast() && clock_.Now() < until) {
    clock_.WaitUntil(changed_, mutex_, until);
  }
  std::swap(out, messages_);
  return !out.empty() || !closed_;
}

void RequestQueue::Close() {
  base::MutexLock lock(mutex_);
  closed_ = true;
  changed_.SignalAll();
}

}  // namespace tessera::decode
