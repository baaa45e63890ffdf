#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tessera::gateway::http {

struct HttpOptions {
  std::string address = "127.0.0.1:8000";  // host:port; port 0 takes a free one
  int threads = 2;                         // that serve connections
  int parse_threads = 2;                   // that read large bodies, so that no stream waits
  size_t max_connections = 1024;           // one more takes the place of idle ones, or is told 503
  size_t max_header_bytes = 16 << 10;
  size_t max_bodies_bytes = 512 << 20;  // of all bodies until their answers begin; beyond it 503
  absl::Duration header_timeout = absl::Seconds(10);  // from the first byte to the last
  // Of a body; a second more for each 64 KiB of it that came.
  absl::Duration body_timeout = absl::Seconds(30);
  // Between two requests; told to clients. Longer than they keep a connection, as a rule 60 to 90
  // s: who sends into one that is just closed here has lost his request.
  absl::Duration idle_timeout = absl::Seconds(120);
  absl::Duration write_timeout = absl::Seconds(30);  // of what is left when an answer has ended
  absl::Duration linger_timeout = absl::Seconds(5);  // for a client to read why it is closed
  int send_buffer_bytes = 64 << 10;  // of a socket in the kernel; 0: as the system likes
  // PEM files: TLS where the first two are given; read again when they change.
  std::string tls_certificate = {};
  std::string tls_key = {};
  std::string tls_client_ca = {};  // not empty: clients must show a certificate of it
  // Pictures are fetched from http(s) URLs of these hosts; empty: none is (image_fetcher.h).
  std::vector<std::string> image_url_hosts = {};
  int image_url_loopback_port = 0;  // for tests: FetchOptions::loopback_port

  absl::Status Validate() const;  // INVALID_ARGUMENT names the flag
};

}  // namespace tessera::gateway::http
