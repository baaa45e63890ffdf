#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/digest.h"
#include "common/tensor/dtype.h"

namespace tessera::store {

// Raised when the record format or the meaning of a key field changes: old records are then never
// looked up again.
inline constexpr uint32_t kFormatVersion = 1;

// Everything that decides the rows of a picture, in the order in which it is hashed.
struct KeyFields {
  uint32_t format_version = kFormatVersion;
  std::string tenant;
  base::Sha256Digest image_digest{};    // of the encoded bytes
  std::string preprocessing;            // canonical: every number that changes a pixel
  base::Sha256Digest weights_digest{};  // of tower and connector
  DType compute_dtype = DType::kF32;
  uint64_t row_budget = 0;   // 0: none
  std::string reduction;     // how rows are brought under the budget; empty: not at all
  std::string conditioning;  // digest of the question's tokens where the tower reads the question
  DType record_dtype = DType::kF16;
};

// A picture's identity everywhere: SHA-256, never shortened. A value; comparable, hashable.
class EmbeddingKey {
 public:
  EmbeddingKey() = default;  // all zeros: no key of any picture
  explicit EmbeddingKey(const base::Sha256Digest& digest) : digest_(digest) {}
  // INVALID_ARGUMENT unless there are exactly 32 bytes.
  static absl::StatusOr<EmbeddingKey> FromBytes(absl::string_view bytes);

  const base::Sha256Digest& digest() const { return digest_; }
  absl::string_view bytes() const {
    return {reinterpret_cast<const char*>(digest_.data()), digest_.size()};
  }
  std::string hex() const { return base::ToHex(digest_); }  // lower case, 64 digits

  friend bool operator==(const EmbeddingKey&, const EmbeddingKey&) = default;
  friend auto operator<=>(const EmbeddingKey&, const EmbeddingKey&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const EmbeddingKey& key) {
    return H::combine(std::move(state), key.digest_);
  }

 private:
  base::Sha256Digest digest_{};
};

// SHA-256 over the fields, each behind its length.
EmbeddingKey MakeKey(const KeyFields& fields);

}  // namespace tessera::store
