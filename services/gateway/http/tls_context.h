#pragma once

#include <memory>
#include <string>
#include <utility>

// Asio 1.74 uses std::exchange without including it: <utility> stands before it.
#include <boost/asio/ssl/context.hpp>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/file_watch.h"

namespace tessera::gateway::http {

// PEM files of a server.
struct TlsContextFiles {
  std::string certificate, key;
  std::string client_ca = {};  // not empty: clients must show a certificate of it
};

// What a server's TLS needs, read again when a file of it has changed. What connections have stays
// theirs. One thread.
class TlsContext {
 public:
  // INVALID_ARGUMENT, BAD_OPTION: a file that cannot be read, or a key of another certificate.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Create(TlsContextFiles files);

  // Of now. Looks at the files at most once a second; while new ones are not good the old ones
  // stay, and it is logged (FileWatch).
  std::shared_ptr<boost::asio::ssl::context> Get(absl::Time now);

 private:
  explicit TlsContext(TlsContextFiles files)
      : files_(std::move(files)),
        watch_({files_.certificate, files_.key, files_.client_ca}, "HTTP certificates") {}
  absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> Load() const;

  const TlsContextFiles files_;
  base::FileWatch watch_;
  std::shared_ptr<boost::asio::ssl::context> current_;
};

}  // namespace tessera::gateway::http
