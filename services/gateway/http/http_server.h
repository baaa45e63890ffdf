#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/http/http_deps.h"
#include "services/gateway/http/http_options.h"

namespace tessera::gateway::http {

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
  // The end is near: answers say "connection: close" from now on, and end their connections, so
  // that clients who keep theirs go elsewhere without losing a request. Connections are taken
  // still.
  void AnnounceEnd();
  // Takes no connection any more and closes those that wait for a request: when it returns, whoever
  // has not begun to send finds that closed. The others end with what they are doing.
  void StopListening();
  // StopListening; closes what is left after `grace`, cancelling its answers, and returns when all
  // of these have ended. Later calls do nothing.
  void Shutdown(absl::Duration grace);

 private:
  struct Port;
  explicit HttpServer(std::unique_ptr<Port> port);
  std::unique_ptr<Port> port_;
};

}  // namespace tessera::gateway::http
