#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>

// Asio 1.74 uses std::exchange without including it: <utility> stands before it.
#include <boost/asio/ssl/context.hpp>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

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

  // Of now. Looks at the files at most once a second; new ones that are not good are logged, and
  // the old ones stay.
  std::shared_ptr<boost::asio::ssl::context> Get(absl::Time now);

 private:
  // Of one file: changes when it does.
  using Stamp = std::pair<int64_t, int64_t>;

  explicit TlsContext(TlsContextFiles files) : files_(std::move(files)) {}
  absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> Load() const;
  std::array<Stamp, 3> Stamps() const;

  const TlsContextFiles files_;
  std::shared_ptr<boost::asio::ssl::context> current_;
  std::array<Stamp, 3> stamps_;
  absl::Time looked_ = absl::InfinitePast();
};

}  // namespace tessera::gateway::http
