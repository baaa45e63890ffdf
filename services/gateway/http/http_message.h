#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "services/gateway/http/http_error.h"

namespace tessera::gateway::http {

// An answer of HTTP/1.1, but what its connection adds.
struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // further ones, safe to be written
};

// With Retry-After or WWW-Authenticate where the status has one.
Response ErrorResponse(const HttpError& error);

// How a response goes onto the wire.
struct Framing {
  bool keep_alive = true;
  absl::Duration idle_timeout = absl::ZeroDuration();  // of a connection that is kept; 0: untold
  bool head_only = false;                              // the answer to HEAD
  bool stream = false;  // `body` is not written; chunks follow, or bytes up to the end if not
  bool chunked = true;  // of a stream
  absl::string_view request_id;
  absl::Time now;
};

// Head and body.
std::string Serialize(const Response& response, const Framing& framing);

// One chunk of the chunked coding; `bytes` is not empty.
std::string ChunkOf(absl::string_view bytes);
inline constexpr absl::string_view kLastChunk = "0\r\n\r\n";

}  // namespace tessera::gateway::http
