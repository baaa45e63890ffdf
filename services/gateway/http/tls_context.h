#pragma once

#include <memory>
#include <string>
#include <utility>

// Asio 1.74 uses std::exchange without including it: <utility> stands before it.
#include <boost/asio/ssl/context.hpp>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::gateway::http {

// A server's certificate and key from PEM files, read again when one of them has changed. What
// connections have stays theirs. One thread.
class TlsContext {
 public:
  // INVALID_ARGUMENT, BAD_OPTION: a file that cannot be read, or a key of another certificate.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Create(std::string certificate_file,
                                                            std::string key_file);

  // Of now. Looks at the files at most once a second; new ones that are not good are logged, and
  // the old ones stay.
  std::shared_ptr<boost::asio::ssl::context> Get(absl::Time now);

 private:
  // Of one file: changes when it does.
  using Stamp = std::pair<int64_t, int64_t>;

  TlsContext(std::string certificate_file, std::string key_file)
      : certificate_file_(std::move(certificate_file)), key_file_(std::move(key_file)) {}
  absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> Load() const;
  std::pair<Stamp, Stamp> Stamps() const;

  const std::string certificate_file_, key_file_;
  std::shared_ptr<boost::asio::ssl::context> current_;
  std::pair<Stamp, Stamp> stamps_;
  absl::Time looked_ = absl::InfinitePast();
};

}  // namespace tessera::gateway::http
