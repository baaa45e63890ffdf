#include "common/base/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "common/base/check.h"

namespace tessera::base {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  // Fetched once: starting anew with EVP_sha256() would look it up, and allocate, each time.
  EVP_MD* algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  ~State() {
    EVP_MD_CTX_free(context);
    EVP_MD_free(algorithm);
  }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK(state_->context != nullptr && state_->algorithm != nullptr);
  Reset();
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Reset() {
  CHECK_EQ(EVP_DigestInit_ex(state_->context, state_->algorithm, nullptr), 1);
}

void Sha256::Update(absl::string_view bytes) {
  CHECK_EQ(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()), 1);
}

void Sha256::UpdateField(absl::string_view bytes) {
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(uint64_t{bytes.size()} >> (8 * i));
  Update(absl::string_view(length, sizeof(length)));
  Update(bytes);
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  CHECK_EQ(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr), 1);
  return digest;
}

Sha256Digest Sha256Of(absl::string_view bytes) {
  Sha256 sha;
  sha.Update(bytes);
  return sha.Finish();
}

Sha256Digest HmacSha256(absl::string_view key, absl::string_view bytes) {
  Sha256Digest digest;
  unsigned int size = digest.size();
  CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data(),
             &size) != nullptr);
  return digest;
}

std::string ToHex(absl::string_view bytes) { return absl::BytesToHexString(bytes); }

std::string ToHex(const Sha256Digest& digest) {
  return ToHex(absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

absl::StatusOr<Sha256Digest> DigestFromHex(absl::string_view hex) {
  Sha256Digest digest;
  if (hex.size() != 2 * digest.size()) {
    return absl::InvalidArgumentError("a SHA-256 digest has 64 hexadecimal digits");
  }
  for (char c : hex) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError("a digest holds a character that is no hexadecimal digit");
    }
  }
  const std::string bytes = absl::HexStringToBytes(hex);
  std::memcpy(digest.data(), bytes.data(), digest.size());
  return digest;
}

bool ConstantTimeEqual(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  CHECK_EQ(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)), 1);
  return bytes;
}

}  // namespace tessera::base
