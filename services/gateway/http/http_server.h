#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/rpc/trace/trace_context.h"
#include "services/gateway/api/api_deps.h"
#include "tessera/v1/gateway.pb.h"

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
  absl::Duration idle_timeout = absl::Seconds(75);   // between two requests
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

// A request that has been answered, or whose client has gone (499). Nothing of what it said.
struct HttpDone {
  std::string request_id;
  rpc::TraceContext trace;
  absl::string_view route;  // "chat", "models", "health", "version", "unknown"
  int status = 0;
  bool stream = false;
  bool entered = false;  // a chat call: RequestMetrics has told its end already
  absl::Time arrival;    // the end of the request's head
  absl::Time end;
};

// The tenant behind an Authorization header, which may be empty; UNAUTHENTICATED where there is
// none. Any thread; must not wait.
using TenantResolver = std::function<absl::StatusOr<std::string>(absl::string_view authorization)>;

struct HttpDeps {
  ApiDeps api;  // what it refers to outlives the server
  v1::GetModelInfoResponse model;
  std::string version;                        // for /version
  TenantResolver tenant;                      // empty: everybody is the tenant ""
  std::function<absl::Status()> health;       // empty: well. Any thread; must not wait
  std::function<void(const HttpDone&)> done;  // may be empty. Any thread; must not wait
};

// The OpenAI API of the gateway over HTTP/1.1: POST /v1/chat/completions, GET /v1/models, /health,
// /version. README.md tells what it takes and refuses.
class HttpServer {
 public:
  // Listens at once. INVALID_ARGUMENT: BAD_OPTION, or ADDRESS_UNAVAILABLE where the address cannot
  // be had (ports are not shared).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options, HttpDeps deps);
  // Shutdown(0).
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  // Connections that are open.
  int connections() const;
  // Takes no connection any more and closes those that wait for a request; the others end with what
  // they are doing. Closes what is left after `grace`, cancelling its answers, and returns when all
  // of these have ended. Later calls do nothing.
  void Shutdown(absl::Duration grace);

 private:
  struct Engine;
  explicit HttpServer(std::unique_ptr<Engine> engine);
  std::unique_ptr<Engine> engine_;
};

}  // namespace tessera::gateway::http
