#include "services/gateway/http/connection_count.h"

#include "common/base/clock.h"

namespace tessera::gateway::http {

void ConnectionCount::Add(int more) {
  base::MutexLock lock(mutex_);
  if (value_.fetch_add(more) + more == 0) none_.SignalAll();
}

void ConnectionCount::AwaitNone(absl::Duration timeout) {
  base::Clock& clock = base::RealClock();
  const absl::Time end = clock.Now() + timeout;
  base::MutexLock lock(mutex_);
  while (value_.load() > 0 && clock.Now() < end) clock.WaitUntil(none_, mutex_, end);
}

}  // namespace tessera::gateway::http
