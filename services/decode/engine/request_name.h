#pragma once

#include <string>

namespace tessera::decode {

// As logs and traces know a request: goes with what is asked of others for it. Either may be empty.
struct RequestName {
  std::string request_id;
  std::string traceparent;  // W3C Trace Context, of who asks
};

}  // namespace tessera::decode
