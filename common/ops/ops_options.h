#pragma once

#include <cstddef>
#include <string>

#include "absl/time/time.h"

namespace tessera::ops {

struct OpsOptions {
  std::string address = "127.0.0.1:9464";  // host:port; port 0 takes a free one
  // Of a request, from the first moment that it could be sent to its last byte, and of an answer's
  // way out: a connection that takes longer is closed.
  absl::Duration timeout = absl::Seconds(10);
  size_t max_connections = 64;  // one more, and the one that was silent longest is closed
  size_t max_header_bytes = 8192;
};

}  // namespace tessera::ops
