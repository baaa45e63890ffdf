#include "common/rpc/tls/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::rpc {
namespace {

namespace tls = grpc::experimental;

std::shared_ptr<tls::CertificateProviderInterface> Provider(const TlsWatch& watch) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(
      watch.pair_path(), watch.pair_path(), watch.ca_path(),
      static_cast<unsigned>(absl::ToInt64Seconds(watch.files().refresh)));
}

std::shared_ptr<grpc::ServerCredentials> ServerSide(const TlsWatch& watch) {
  tls::TlsServerCredentialsOptions options(Provider(watch));
  options.watch_identity_key_cert_pairs();
  if (!watch.files().ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ClientSide(const TlsWatch& watch) {
  tls::TlsChannelCredentialsOptions options;
  if (!watch.files().empty()) options.set_certificate_provider(Provider(watch));
  if (!watch.files().ca.empty()) options.watch_root_certs();
  if (!watch.files().cert.empty()) options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(std::make_shared<tls::HostNameCertificateVerifier>());
  return tls::TlsCredentials(options);
}

}  // namespace

ServerTls::ServerTls(std::unique_ptr<TlsWatch> watch)
    : watch_(std::move(watch)), credentials_(ServerSide(*watch_)) {}

absl::StatusOr<std::unique_ptr<ServerTls>> ServerTls::Create(TlsFiles files) {
  if (files.cert.empty() && files.key.empty()) {
    return base::BadField(files.cert_flag, "BAD_OPTION",
                          absl::StrCat("--", files.ca_flag, " is given: TLS needs --",
                                       files.cert_flag, " and --", files.key_flag, " too"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<TlsWatch> watch, TlsWatch::Create(std::move(files)));
  return std::unique_ptr<ServerTls>(new ServerTls(std::move(watch)));
}

ChannelTls::ChannelTls(std::unique_ptr<TlsWatch> watch)
    : watch_(std::move(watch)), credentials_(ClientSide(*watch_)) {}

absl::StatusOr<std::shared_ptr<const ChannelTls>> ChannelTls::Create(TlsFiles files) {
  ASSIGN_OR_RETURN(std::unique_ptr<TlsWatch> watch, TlsWatch::Create(std::move(files)));
  return std::shared_ptr<const ChannelTls>(new ChannelTls(std::move(watch)));
}

}  // namespace tessera::rpc
