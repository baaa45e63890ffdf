#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/store/redis_socket.h"

namespace tessera::store {

// Names to addresses. The system's resolver cannot be cancelled and may take half a minute: it runs
// on a thread of its own that nobody waits for, not even the destructor. One thread calls Resolve;
// Cancel is for any.
class RedisResolver {
 public:
  RedisResolver(std::string host, uint16_t port);
  ~RedisResolver();
  RedisResolver(const RedisResolver&) = delete;
  RedisResolver& operator=(const RedisResolver&) = delete;

  // UNAVAILABLE, reason REDIS_UNRESOLVED: no such name, nothing known within `timeout`, or
  // cancelled. What takes longer goes on, and a later call has its result. A numeric address never
  // waits.
  absl::StatusOr<std::vector<SocketAddress>> Resolve(absl::Duration timeout);
  // Ends a Resolve that waits, and those to come.
  void Cancel();

 private:
  struct State;  // shared with the thread that asks the system

  const std::shared_ptr<State> state_;
};

}  // namespace tessera::store
