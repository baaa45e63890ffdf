#include "common/store/embedding_key.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::store {
namespace {

absl::string_view Bytes(const base::Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

absl::StatusOr<EmbeddingKey> EmbeddingKey::FromBytes(absl::string_view bytes) {
  base::Sha256Digest digest;
  if (bytes.size() != digest.size()) {
    return base::Error(
        absl::StatusCode::kInvalidArgument, "BAD_EMBEDDING_KEY",
        absl::StrCat("an embedding key has ", digest.size(), " bytes, not ", bytes.size()));
  }
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return EmbeddingKey(digest);
}

EmbeddingKey MakeKey(const KeyFields& fields) {
  base::Sha256 sha;
  sha.UpdateField(absl::StrCat(fields.format_version));
  sha.UpdateField(fields.tenant);
  sha.UpdateField(Bytes(fields.image_digest));
  sha.UpdateField(fields.preprocessing);
  sha.UpdateField(Bytes(fields.weights_digest));
  sha.UpdateField(Name(fields.compute_dtype));
  sha.UpdateField(absl::StrCat(fields.row_budget));
  sha.UpdateField(fields.reduction);
  sha.UpdateField(fields.conditioning);
  sha.UpdateField(Name(fields.record_dtype));
  return EmbeddingKey(sha.Finish());
}

}  // namespace tessera::store
