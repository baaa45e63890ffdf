#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/store/redis/redis_tls.h"
#include "common/store/redis/socket_address.h"

namespace tessera::store {

// A TCP connection, plain or TLS. One thread at a time. Deadlines are of base::RealClock; after any
// error it is of no use but to be destroyed, which closes it at once.
class RedisSocket {
 public:
  // UNAVAILABLE, reason REDIS_UNREACHABLE or REDIS_TLS; DEADLINE_EXCEEDED, REDIS_TIMEOUT. Tries the
  // addresses in their order, with an equal share of what is left of the time for each. `tls` may
  // be null, and outlives the socket.
  static absl::StatusOr<std::unique_ptr<RedisSocket>> Connect(
      absl::Span<const SocketAddress> addresses, const RedisTls* tls, absl::Time deadline);
  ~RedisSocket();
  RedisSocket(const RedisSocket&) = delete;
  RedisSocket& operator=(const RedisSocket&) = delete;

  // All of `bytes`. UNAVAILABLE, REDIS_CLOSED; DEADLINE_EXCEEDED, REDIS_TIMEOUT.
  absl::Status Write(absl::string_view bytes, absl::Time deadline);
  // What has come, 1 byte or more, into the front of `into`; how many. Errors as for Write.
  // REQUIRES: `into` is not empty.
  absl::StatusOr<size_t> Read(absl::Span<char> into, absl::Time deadline);
  // Whether the other side is there and has sent nothing that was not read. Never waits.
  bool IsQuiet();

 private:
  explicit RedisSocket(int fd) : fd_(fd) {}

  absl::Status Open(const SocketAddress& address, absl::Time deadline);
  absl::Status Handshake(const RedisTls& tls, absl::Time deadline);
  // Waits for `events` of poll(2).
  absl::Status Wait(short events, absl::Time deadline) const;
  // After a call of OpenSSL that did not do it: waits for what it needs, or says what is wrong.
  absl::Status WaitForTls(int result, absl::Time deadline);

  const int fd_;
  SslPtr ssl_;  // null: plain
};

}  // namespace tessera::store
