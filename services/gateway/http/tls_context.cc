#include "services/gateway/http/tls_context.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::gateway::http {
namespace {

using boost::asio::ssl::context;

absl::Status BadTlsFile(absl::string_view flag, const std::string& file,
                        const boost::system::error_code& error) {
  return base::BadField(flag, "BAD_OPTION",
                        absl::StrCat("--", flag, " ", file, ": ", error.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Create(TlsContextFiles files) {
  auto tls = std::unique_ptr<TlsContext>(new TlsContext(std::move(files)));
  ASSIGN_OR_RETURN(tls->current_, tls->Load());
  return tls;
}

absl::StatusOr<std::shared_ptr<context>> TlsContext::Load() const {
  auto fresh = std::make_shared<context>(context::tls_server);
  boost::system::error_code error;
  fresh->set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 |
                         context::no_tlsv1 | context::no_tlsv1_1 | context::no_compression,
                     error);
  if (!error) fresh->use_certificate_chain_file(files_.certificate, error);
  if (error) return BadTlsFile("tls_cert_file", files_.certificate, error);
  fresh->use_private_key_file(files_.key, context::pem, error);
  if (error) return BadTlsFile("tls_key_file", files_.key, error);
  if (files_.client_ca.empty()) return fresh;
  fresh->load_verify_file(files_.client_ca, error);
  if (!error) {
    fresh->set_verify_mode(
        boost::asio::ssl::verify_peer | boost::asio::ssl::verify_fail_if_no_peer_cert, error);
  }
  if (error) return BadTlsFile("tls_client_ca_file", files_.client_ca, error);
  // Without a name of their own, sessions of clients with certificates cannot be resumed.
  static constexpr unsigned char kName[] = "tessera";
  SSL_CTX_set_session_id_context(fresh->native_handle(), kName, sizeof(kName) - 1);
  return fresh;
}

std::shared_ptr<context> TlsContext::Get(absl::Time now) {
  watch_.Look(now, [this]() -> absl::Status {
    ASSIGN_OR_RETURN(current_, Load());
    return absl::OkStatus();
  });
  return current_;
}

}  // namespace tessera::gateway::http
