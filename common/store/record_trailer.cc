#include "common/store/record_trailer.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <array>
#include <memory>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/store/record_verdict.h"

namespace tessera::store {
namespace {

constexpr char kXxh3Kind = 1;
constexpr char kGmacKind = 2;
constexpr size_t kXxh3Bytes = 8;
constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;
constexpr size_t kGmacBytes = kNonceBytes + kTagBytes;

// What is sealed, in the order in which it is stored.
using Pieces = std::array<absl::string_view, 2>;

std::string Xxh3(const Pieces& pieces) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  CHECK(state != nullptr);
  CHECK_EQ(XXH3_64bits_reset(state.get()), XXH_OK);
  for (const absl::string_view piece : pieces) {
    CHECK_EQ(XXH3_64bits_update(state.get(), piece.data(), piece.size()), XXH_OK);
  }
  const uint64_t hash = XXH3_64bits_digest(state.get());
  std::string out;
  for (size_t i = 0; i < kXxh3Bytes; ++i) out.push_back(static_cast<char>(hash >> (8 * i)));
  return out;
}

const unsigned char* Unsigned(absl::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

// AES-256-GMAC: GCM over no plain text, `pieces` being the data that is only authenticated.
std::string Gmac(absl::string_view key, absl::string_view nonce, const Pieces& pieces) {
  const std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> context(EVP_CIPHER_CTX_new(),
                                                                           EVP_CIPHER_CTX_free);
  CHECK(context != nullptr);
  std::string tag(kTagBytes, '\0');
  int written = 0;
  CHECK_EQ(
      EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, Unsigned(key), Unsigned(nonce)),
      1);
  constexpr size_t kStep = size_t{1} << 30;  // OpenSSL counts in int
  for (const absl::string_view piece : pieces) {
    for (size_t at = 0; at < piece.size(); at += kStep) {
      const absl::string_view part = piece.substr(at, kStep);
      CHECK_EQ(EVP_EncryptUpdate(context.get(), nullptr, &written, Unsigned(part),
                                 static_cast<int>(part.size())),
               1);
    }
  }
  unsigned char none[kTagBytes];
  CHECK_EQ(EVP_EncryptFinal_ex(context.get(), none, &written), 1);
  CHECK_EQ(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag.data()), 1);
  return tag;
}

// Whether the byte where a trailer of `trailer_bytes` would have its kind is `kind`.
bool HasKind(absl::string_view bytes, size_t trailer_bytes, char kind) {
  return bytes.size() > trailer_bytes && bytes[bytes.size() - trailer_bytes - 1] == kind;
}

}  // namespace

void AppendTrailer(absl::string_view mac_key, std::string& bytes) {
  if (mac_key.empty()) {
    bytes.push_back(kXxh3Kind);
    bytes.append(Xxh3({bytes, {}}));
    return;
  }
  bytes.push_back(kGmacKind);
  const std::string nonce = base::RandomBytes(kNonceBytes);
  const std::string tag = Gmac(mac_key, nonce, {bytes, {}});
  bytes.append(nonce);
  bytes.append(tag);
}

absl::StatusOr<size_t> CheckTrailer(absl::string_view mac_key, absl::string_view head,
                                    absl::string_view body) {
  if (!mac_key.empty()) {
    if (!HasKind(body, kGmacBytes, kGmacKind)) {
      return Refuse(RecordVerdict::kOtherTrailer, "it is not sealed with a GMAC");
    }
    const absl::string_view sealed = body.substr(0, body.size() - kGmacBytes);
    const absl::string_view nonce = body.substr(sealed.size(), kNonceBytes);
    if (base::ConstantTimeEqual(Gmac(mac_key, nonce, {head, sealed}),
                                body.substr(sealed.size() + kNonceBytes))) {
      return sealed.size() - 1;
    }
    return Refuse(RecordVerdict::kBadMac, "its GMAC differs");
  }
  if (body.size() <= kXxh3Bytes) return Refuse(RecordVerdict::kBadLength, "too few bytes");
  const absl::string_view sealed = body.substr(0, body.size() - kXxh3Bytes);
  const bool intact = Xxh3({head, sealed}) == body.substr(sealed.size());
  if (intact && sealed.back() == kXxh3Kind) return sealed.size() - 1;
  // A GMAC record may have any byte where ours has its kind: it is left alone, whatever stands
  // there.
  if (intact || HasKind(body, kGmacBytes, kGmacKind)) {
    return Refuse(RecordVerdict::kOtherTrailer, "it is not sealed with XXH3");
  }
  return Refuse(RecordVerdict::kBadChecksum, "its XXH3 differs");
}

}  // namespace tessera::store
