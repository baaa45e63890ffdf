#include "services/gateway/http/http_flags.h"

namespace tessera::gateway::http {

std::vector<flags::Flag> HttpFlags(HttpOptions& options) {
  return {
      {"http_address", flags::ValueOrEmpty(options.address), "of the OpenAI API; empty: none"},
      {"http_threads", flags::Within(options.threads, 1, 64), "that serve HTTP connections"},
      {"http_idle_timeout", flags::Value(options.idle_timeout),
       "of a connection between two requests: longer than clients keep one"},
      {"image_url_hosts", flags::List(options.image_url_hosts),
       "host or host:port,... from whose public addresses pictures are fetched [none is]"},
  };
}

}  // namespace tessera::gateway::http
