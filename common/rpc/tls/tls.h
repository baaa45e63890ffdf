#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "common/rpc/tls/tls_files.h"

namespace tessera::rpc {

// TLS of a server: with a `ca`, clients must show a certificate of it (mutual TLS). New handshakes
// use what the files hold of late; connections keep what they have. Any thread.
class ServerTls {
 public:
  // INVALID_ARGUMENT, BAD_OPTION with the flag: as TlsWatch::Create, and where there is no
  // certificate.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Create(TlsFiles files);
  // Outlived by this.
  std::shared_ptr<grpc::ServerCredentials> credentials() const { return credentials_; }

 private:
  explicit ServerTls(std::unique_ptr<TlsWatch> watch);
  const std::unique_ptr<TlsWatch> watch_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_;
};

// TLS of clients, for any number of channels (ChannelOptions::tls): believes servers with a
// certificate of `ca` (empty: of the system's authorities) for their name, and shows our own where
// there is one. Any thread.
class ChannelTls {
 public:
  // INVALID_ARGUMENT, BAD_OPTION with the flag, as TlsWatch::Create.
  static absl::StatusOr<std::shared_ptr<const ChannelTls>> Create(TlsFiles files);
  // Outlived by this.
  std::shared_ptr<grpc::ChannelCredentials> credentials() const { return credentials_; }
  const std::string& server_name() const { return watch_->files().server_name; }

 private:
  explicit ChannelTls(std::unique_ptr<TlsWatch> watch);
  const std::unique_ptr<TlsWatch> watch_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
};

}  // namespace tessera::rpc
