#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/store/redis_options.h"

using SSL_CTX = struct ssl_ctx_st;
using SSL = struct ssl_st;

namespace tessera::store {

struct SslFree {
  void operator()(SSL* ssl) const;
};
using SslPtr = std::unique_ptr<SSL, SslFree>;

// Certificates and rules of our TLS connections. Immutable: any thread.
class RedisTls {
 public:
  // TLS 1.2 or later, the server's certificate checked. INVALID_ARGUMENT, reason BAD_OPTION, names
  // the file that cannot be used.
  static absl::StatusOr<std::unique_ptr<RedisTls>> Create(const RedisOptions& options);
  ~RedisTls();
  RedisTls(const RedisTls&) = delete;
  RedisTls& operator=(const RedisTls&) = delete;

  // A client's side over the connected, non-blocking `socket`, which it borrows; the handshake is
  // still to come. It writes without raising SIGPIPE.
  SslPtr Over(int socket) const;

 private:
  RedisTls(SSL_CTX* context, std::string server_name)
      : context_(context), server_name_(std::move(server_name)) {}

  SSL_CTX* const context_;
  const std::string server_name_;
};

// What OpenSSL has to say of the last failure in this thread, and why a certificate was refused.
std::string TlsErrorText(SSL* ssl);

}  // namespace tessera::store
