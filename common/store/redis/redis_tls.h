#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/file_watch.h"
#include "common/base/mutex.h"
#include "common/store/redis/redis_options.h"

using SSL_CTX = struct ssl_ctx_st;
using SSL = struct ssl_st;

namespace tessera::store {

struct SslFree {
  void operator()(SSL* ssl) const;
};
using SslPtr = std::unique_ptr<SSL, SslFree>;

// Certificates and rules of our TLS connections; certificates are read again when their files
// change, for connections to come. Any thread.
class RedisTls {
 public:
  // TLS 1.2 or later, the server's certificate checked. INVALID_ARGUMENT, reason BAD_OPTION, names
  // the file that cannot be used.
  static absl::StatusOr<std::unique_ptr<RedisTls>> Create(const RedisOptions& options);

  // A client's side over the connected, non-blocking `socket`, which it borrows; the handshake is
  // still to come. It writes without raising SIGPIPE. Looks at the files at most once a second;
  // while new ones are not good the old ones stay, and it is logged (FileWatch).
  SslPtr Over(int socket, absl::Time now) const;

 private:
  struct ContextFree {
    void operator()(SSL_CTX* context) const;
  };

  explicit RedisTls(const RedisOptions& options);
  absl::Status Load() const;
  absl::Status LoadFiles(SSL_CTX* context) const;

  const std::string ca_file_, cert_file_, key_file_;
  const std::string server_name_;
  mutable base::FileWatch watch_;
  mutable base::Mutex mutex_;
  mutable std::unique_ptr<SSL_CTX, ContextFree> context_ ABSL_GUARDED_BY(mutex_);
};

// What OpenSSL has to say of the last failure in this thread, and why a certificate was refused.
std::string TlsErrorText(SSL* ssl);

}  // namespace tessera::store
