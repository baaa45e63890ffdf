#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/store/embedding_record.h"
#include "common/store/record_verdict.h"

namespace tessera::store {

// What a reader knows beforehand; nullopt takes any.
struct RecordExpectation {
  EmbeddingKey key;
  std::optional<DType> dtype = std::nullopt;
  std::optional<int64_t> rows = std::nullopt;
  std::optional<int64_t> width = std::nullopt;
};

// Records to bytes and back (the layout is in record.proto). Pure; immutable: any thread. The
// trailer is checked before a byte of the header is parsed.
class RecordCodec {
 public:
  // Seals with XXH3-64: guards against accidents, not against people.
  RecordCodec() = default;
  // Seals with AES-256-GMAC under `key`, with a fresh nonce each time, and accepts nothing else.
  // INVALID_ARGUMENT unless `key` has 32 bytes.
  static absl::StatusOr<RecordCodec> WithKey(absl::string_view key);

  // INVALID_ARGUMENT: NONFINITE_ROWS. REQUIRES: rows, width >= 1; data has their size.
  absl::StatusOr<std::string> Encode(const EmbeddingRecord& record) const;

  // INVALID_ARGUMENT with a verdict (VerdictOf).
  absl::StatusOr<EmbeddingRecord> Decode(absl::string_view bytes,
                                         const RecordExpectation& expected) const;

 private:
  std::string mac_key_;  // empty: XXH3
};

}  // namespace tessera::store
