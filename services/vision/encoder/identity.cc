#include "services/vision/encoder/identity.h"

namespace tessera::vision {
namespace {

// The same weights under another config (feature layer, activation) give other rows.
base::Sha256Digest ModelDigest(const RowIdentity& identity) {
  base::Sha256 sha;
  sha.UpdateField(
      {reinterpret_cast<const char*>(identity.weight_bytes.data()), identity.weight_bytes.size()});
  sha.UpdateField(identity.tower);
  return sha.Finish();
}

}  // namespace

store::EmbeddingKey KeyOf(const RowIdentity& identity, absl::string_view tenant,
                          const base::Sha256Digest& image_digest) {
  store::KeyFields fields;
  fields.tenant = std::string(tenant);
  fields.image_digest = image_digest;
  fields.preprocessing = identity.preprocessing;
  fields.weights_digest = ModelDigest(identity);
  fields.compute_dtype = identity.compute_dtype;
  fields.row_budget = identity.row_budget;
  fields.reduction = identity.reduction;
  fields.record_dtype = identity.record_dtype;
  return store::MakeKey(fields);
}

std::string FingerprintOf(const RowIdentity& identity, const QualityGate& gate) {
  base::Sha256 sha;
  sha.UpdateField("vision fingerprint");
  sha.UpdateField(KeyOf(identity, "", {}).bytes());
  sha.UpdateField(gate.Canonical());
  return base::ToHex(sha.Finish());
}

}  // namespace tessera::vision
