#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

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

// A record's bytes in two pieces, so that the rows can be read into the place where they stay.
struct RecordPieces {
  std::string head;             // magic, header length, header; empty where it cannot be told
  std::vector<std::byte> body;  // rows, scales, trailer; all that there is where `head` is empty
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
  // The same for bytes that were cut after HeadBytes; the rows are not copied.
  absl::StatusOr<EmbeddingRecord> Decode(RecordPieces pieces,
                                         const RecordExpectation& expected) const;

  // What a record of `rows` rows of `width` takes at most, whatever their type. REQUIRES: both at
  // least 1.
  static size_t MostBytes(int64_t rows, int64_t width);

  // Magic and header length.
  static constexpr size_t kPrefixBytes = 8;
  // Where to cut `total` bytes that begin with `prefix` into pieces; 0 where they are no record.
  // REQUIRES: prefix has the first kPrefixBytes, or all where there are fewer.
  static size_t HeadBytes(absl::string_view prefix, size_t total);

 private:
  std::string mac_key_;  // empty: XXH3
};

}  // namespace tessera::store
