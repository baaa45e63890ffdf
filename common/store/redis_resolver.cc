#include "common/store/redis_resolver.h"

#include <netdb.h>

#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"

namespace tessera::store {
namespace {

using Addresses = absl::StatusOr<std::vector<SocketAddress>>;

absl::Status Unresolved(const std::string& host, absl::string_view why) {
  return base::Error(absl::StatusCode::kUnavailable, "REDIS_UNRESOLVED",
                     absl::StrCat("the host name ", host, ": ", why));
}

Addresses Ask(const std::string& host, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return Unresolved(host, gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

struct RedisResolver::State {
  std::string host;
  uint16_t port = 0;
  base::Mutex mutex;
  base::CondVar changed;
  bool asking ABSL_GUARDED_BY(mutex) = false;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
  bool answered ABSL_GUARDED_BY(mutex) = false;
  Addresses answer ABSL_GUARDED_BY(mutex);
};

RedisResolver::RedisResolver(std::string host, uint16_t port) : state_(std::make_shared<State>()) {
  state_->host = std::move(host);
  state_->port = port;
}

RedisResolver::~RedisResolver() { Cancel(); }

void RedisResolver::Cancel() {
  base::MutexLock lock(state_->mutex);
  state_->cancelled = true;
  state_->changed.SignalAll();
}

Addresses RedisResolver::Resolve(absl::Duration timeout) {
  State& state = *state_;
  if (Addresses numeric = Ask(state.host, state.port, AI_NUMERICHOST); numeric.ok()) return numeric;
  const absl::Time deadline = base::RealClock().Now() + timeout;
  base::MutexLock lock(state.mutex);
  if (!state.asking && !state.answered && !state.cancelled) {
    state.asking = true;
    std::thread([shared = state_] {
      Addresses answer = Ask(shared->host, shared->port, 0);
      base::MutexLock lock(shared->mutex);
      shared->asking = false;
      shared->answered = true;
      shared->answer = std::move(answer);
      shared->changed.SignalAll();
    }).detach();
  }
  while (!state.answered && !state.cancelled) {
    const absl::Duration left = deadline - base::RealClock().Now();
    if (left <= absl::ZeroDuration()) return Unresolved(state.host, "no answer in time");
    state.changed.WaitFor(state.mutex, left);
  }
  if (!state.answered) return Unresolved(state.host, "cancelled");
  state.answered = false;
  return std::move(state.answer);
}

}  // namespace tessera::store
