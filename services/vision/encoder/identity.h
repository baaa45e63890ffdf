#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/digest.h"
#include "common/store/embedding_key.h"
#include "common/tensor/dtype.h"
#include "services/vision/encoder/quality_gate.h"

namespace tessera::vision {

// Everything beside tenant and picture that decides the rows: with it a service names its records.
struct RowIdentity {
  std::string preprocessing;          // PreprocessConfig::Canonical()
  std::string tower;                  // TowerConfig::Canonical()
  base::Sha256Digest weight_bytes{};  // of the tensors of tower and connector
  DType compute_dtype = DType::kF32;  // of activations
  DType record_dtype = DType::kF16;   // of stored rows
  uint64_t row_budget = 0;            // 0: all rows
  std::string reduction;              // how rows are dropped or pooled; empty: not
};

// The key of a picture for a tenant. The digest is over the encoded bytes.
store::EmbeddingKey KeyOf(const RowIdentity& identity, absl::string_view tenant,
                          const base::Sha256Digest& image_digest);

// Hex. Changes with every field above and with the gate: a known picture is judged anew.
std::string FingerprintOf(const RowIdentity& identity, const QualityGate& gate);

}  // namespace tessera::vision
