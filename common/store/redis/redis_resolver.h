#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/detached_call.h"
#include "common/store/redis/socket_address.h"

namespace tessera::store {

// Names to addresses. The system's resolver may take half a minute: nobody waits for it longer than
// he wants to, not even the destructor. One thread calls Resolve; Cancel is for any.
class RedisResolver {
 public:
  using Addresses = absl::StatusOr<std::vector<SocketAddress>>;

  // `resolve` in the system's place; null: the system's.
  RedisResolver(std::string host, uint16_t port, std::function<Addresses()> resolve = nullptr);

  // UNAVAILABLE, reason REDIS_UNRESOLVED: no such name, nothing known within `timeout`, or
  // cancelled. What takes longer goes on, and a later call has its result. A numeric address never
  // waits.
  Addresses Resolve(absl::Duration timeout);
  // Ends a Resolve that waits, and those to come.
  void Cancel() { call_.Cancel(); }

 private:
  const std::string host_;
  const uint16_t port_;
  const bool system_;  // it is asked
  base::DetachedCall<Addresses> call_;
};

}  // namespace tessera::store
