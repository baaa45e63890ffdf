#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/store/record_codec.h"
#include "common/store/redis/redis_address.h"
#include "common/store/redis/socket_address.h"

namespace tessera::store {

// How a Redis is spoken to. Validated by RedisStore::Create. Times are of the wall, each from the
// moment in which the step begins.
struct RedisOptions {
  RedisAddress address;
  std::string tls_ca_file;      // whom to trust; empty: the system's list
  std::string tls_cert_file;    // ours, for a server that asks; with tls_key_file
  std::string tls_key_file;     // PEM, not encrypted
  std::string tls_server_name;  // to be in the server's certificate; empty: the host

  // Connect, TLS, AUTH and SELECT together. 1 ms or more.
  absl::Duration connect_timeout = absl::Milliseconds(200);
  // Of one operation, whatever its size: 1 ms or more. Beside it a value has its bytes /
  // min_bytes_per_second, so that 8 MiB have 50 + 84 ms.
  absl::Duration operation_timeout = absl::Milliseconds(50);
  size_t min_bytes_per_second = 100 << 20;
  // A time-out ends its own connection; so many in a row, and Redis counts as lost. 1 or more.
  int timeouts_until_lost = 3;
  // After a loss the first try comes after about `min_backoff`, each further one after twice as
  // long, up to `max_backoff`; a random half of it is taken off. An answered operation resets it.
  absl::Duration min_backoff = absl::Milliseconds(20);
  absl::Duration max_backoff = absl::Seconds(5);
  // While it is up, an answer is asked for so often, so that a loss is seen without traffic.
  absl::Duration ping_interval = absl::Seconds(1);
  // Of the host's name; null: the system's. For tests.
  std::function<absl::StatusOr<std::vector<SocketAddress>>()> resolve = nullptr;
  // At a time, one per thread that is in an operation: 1..256; who finds none free waits for one,
  // within the operation's time.
  int max_connections = 8;

  absl::Duration ttl = absl::Hours(24);        // of a record; 1 s or more, whole seconds
  size_t max_value_bytes = size_t{128} << 20;  // longer ones are neither written nor read
  RecordCodec codec;
};

}  // namespace tessera::store
