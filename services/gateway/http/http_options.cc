#include "services/gateway/http/http_options.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/gateway/http/image_fetcher.h"

namespace tessera::gateway::http {
namespace {

absl::Status BadHttpOption(absl::string_view flag, absl::string_view message) {
  return base::BadField(flag, "BAD_OPTION", absl::StrCat("--", flag, " ", message));
}

}  // namespace

absl::Status HttpOptions::Validate() const {
  if (threads < 1 || threads > 64) return BadHttpOption("http_threads", "must be from 1 to 64");
  if (parse_threads < 1 || parse_threads > 64)
    return BadHttpOption("parse_threads", "must be from 1 to 64");
  if (max_connections < 1) return BadHttpOption("http_max_connections", "must be at least 1");
  if (max_header_bytes < 1024 || max_header_bytes > (1 << 20)) {
    return BadHttpOption("http_max_header_bytes", "must be from 1 KiB to 1 MiB");
  }
  if (send_buffer_bytes < 0) return BadHttpOption("http_send_buffer_bytes", "must be 0 or more");
  for (const absl::Duration timeout :
       {header_timeout, body_timeout, idle_timeout, write_timeout, linger_timeout}) {
    if (timeout <= absl::ZeroDuration()) return BadHttpOption("http_timeouts", "must be above 0");
  }
  if (tls_certificate.empty() != tls_key.empty()) {
    return BadHttpOption(tls_key.empty() ? "tls_key_file" : "tls_cert_file",
                         "is missing: TLS needs a certificate and its key");
  }
  if (!tls_client_ca.empty() && tls_certificate.empty()) {
    return BadHttpOption("tls_cert_file", "is missing: --tls_client_ca_file needs it");
  }
  for (std::string host : image_url_hosts) RETURN_IF_ERROR(CheckImageHost(host));
  return absl::OkStatus();
}

}  // namespace tessera::gateway::http
