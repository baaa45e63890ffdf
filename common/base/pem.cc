#include "common/base/pem.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace tessera::base {
namespace {

template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Certificate = std::unique_ptr<X509, FreeWith<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using Reader = std::unique_ptr<BIO, FreeWith<BIO_free>>;

Reader Read(absl::string_view text) {
  Reader reader(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  CHECK(reader != nullptr);
  return reader;
}

// OpenSSL would ask the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

// The first certificate, all of them looked at.
absl::StatusOr<Certificate> FirstOf(absl::string_view pem) {
  const Reader reader = Read(pem);
  Certificate first;
  for (int count = 0;; ++count) {
    ERR_clear_error();
    Certificate next(PEM_read_bio_X509(reader.get(), nullptr, NoPassword, nullptr));
    if (next == nullptr) {
      const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
      ERR_clear_error();
      if (!at_end) {
        return absl::InvalidArgumentError(
            absl::StrCat("certificate ", count + 1, " of the file is broken"));
      }
      break;
    }
    if (first == nullptr) first = std::move(next);
  }
  if (first == nullptr) return absl::InvalidArgumentError("holds no certificate in PEM");
  return first;
}

}  // namespace

absl::Status CheckCertificates(absl::string_view pem) { return FirstOf(pem).status(); }

absl::Status CheckKeyPair(absl::string_view certificates, absl::string_view key) {
  ASSIGN_OR_RETURN(const Certificate certificate, FirstOf(certificates));
  const Reader reader = Read(key);
  const Key secret(PEM_read_bio_PrivateKey(reader.get(), nullptr, NoPassword, nullptr));
  const bool match =
      secret != nullptr && X509_check_private_key(certificate.get(), secret.get()) == 1;
  ERR_clear_error();
  if (secret == nullptr) {
    return absl::InvalidArgumentError("holds no private key in PEM that needs no password");
  }
  if (!match) return absl::InvalidArgumentError("is not the key of the certificate");
  return absl::OkStatus();
}

}  // namespace tessera::base
