#include "common/store/redis/redis_tls.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::store {
namespace {

int SocketOf(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int AfterTransfer(BIO* bio, ssize_t done) {
  BIO_clear_retry_flags(bio);
  if (done >= 0) return static_cast<int>(done);
  const bool again = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (again) BIO_set_flags(bio, BIO_FLAGS_SHOULD_RETRY);
  return -1;
}

int SocketWrite(BIO* bio, const char* data, int size) {
  const int done = AfterTransfer(bio, send(SocketOf(bio), data, size, MSG_NOSIGNAL));
  if (BIO_should_retry(bio)) BIO_set_retry_write(bio);
  return done;
}

int SocketRead(BIO* bio, char* data, int size) {
  const int done = AfterTransfer(bio, recv(SocketOf(bio), data, size, 0));
  if (BIO_should_retry(bio)) BIO_set_retry_read(bio);
  return done;
}

long SocketControl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// OpenSSL's own socket BIO writes with write(2), which raises SIGPIPE.
BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tessera socket");
    CHECK(made != nullptr);
    BIO_meth_set_write(made, SocketWrite);
    BIO_meth_set_read(made, SocketRead);
    BIO_meth_set_ctrl(made, SocketControl);
    return made;
  }();
  return method;
}

absl::Status BadFile(absl::string_view option, absl::string_view file) {
  return base::BadField(option, "BAD_OPTION",
                        absl::StrCat(option, " \"", file, "\": ", TlsErrorText(nullptr)));
}

bool IsAddress(const std::string& name) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, name.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, name.c_str(), bytes) == 1;
}

}  // namespace

void SslFree::operator()(SSL* ssl) const { SSL_free(ssl); }

std::string TlsErrorText(SSL* ssl) {
  const long verdict = ssl == nullptr ? X509_V_OK : SSL_get_verify_result(ssl);
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* const text = code == 0 ? nullptr : ERR_reason_error_string(code);
  std::string out = text == nullptr ? "TLS failed" : text;
  if (verdict != X509_V_OK) absl::StrAppend(&out, ": ", X509_verify_cert_error_string(verdict));
  return out;
}

void RedisTls::ContextFree::operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

RedisTls::RedisTls(const RedisOptions& options)
    : ca_file_(options.tls_ca_file),
      cert_file_(options.tls_cert_file),
      key_file_(options.tls_key_file),
      server_name_(options.tls_server_name.empty() ? options.address.host
                                                   : options.tls_server_name),
      watch_({ca_file_, cert_file_, key_file_}, "Redis certificates") {}

absl::StatusOr<std::unique_ptr<RedisTls>> RedisTls::Create(const RedisOptions& options) {
  if (options.tls_cert_file.empty() != options.tls_key_file.empty()) {
    return base::BadField("embedding_store_tls_cert_file", "BAD_OPTION",
                          "embedding_store_tls_cert_file and embedding_store_tls_key_file go "
                          "together");
  }
  std::unique_ptr<RedisTls> tls(new RedisTls(options));
  RETURN_IF_ERROR(tls->Load());
  return tls;
}

absl::Status RedisTls::Load() const {
  ERR_clear_error();
  std::unique_ptr<SSL_CTX, ContextFree> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return absl::ResourceExhaustedError(TlsErrorText(nullptr));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  RETURN_IF_ERROR(LoadFiles(context.get()));
  base::MutexLock lock(mutex_);
  context_.swap(context);
  return absl::OkStatus();
}

absl::Status RedisTls::LoadFiles(SSL_CTX* context) const {
  if (ca_file_.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else if (SSL_CTX_load_verify_locations(context, ca_file_.c_str(), nullptr) != 1) {
    return BadFile("embedding_store_tls_ca_file", ca_file_);
  }
  if (cert_file_.empty()) return absl::OkStatus();
  if (SSL_CTX_use_certificate_chain_file(context, cert_file_.c_str()) != 1) {
    return BadFile("embedding_store_tls_cert_file", cert_file_);
  }
  if (SSL_CTX_use_PrivateKey_file(context, key_file_.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return BadFile("embedding_store_tls_key_file", key_file_);
  }
  return absl::OkStatus();
}

SslPtr RedisTls::Over(int socket, absl::Time now) const {
  watch_.Look(now, [this] { return Load(); });
  SslPtr ssl;
  {
    base::MutexLock lock(mutex_);
    ssl.reset(SSL_new(context_.get()));  // shares the context
  }
  BIO* const bio = BIO_new(SocketMethod());
  CHECK(ssl != nullptr && bio != nullptr);
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl.get(), bio, bio);
  SSL_set_connect_state(ssl.get());
  if (IsAddress(server_name_)) {
    CHECK_EQ(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), server_name_.c_str()), 1);
  } else {
    CHECK_EQ(SSL_set1_host(ssl.get(), server_name_.c_str()), 1);
    CHECK_EQ(SSL_set_tlsext_host_name(ssl.get(), server_name_.c_str()), 1);
  }
  return ssl;
}

}  // namespace tessera::store
