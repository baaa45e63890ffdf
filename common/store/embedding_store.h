#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/store/embedding_key.h"
#include "common/store/embedding_record.h"

namespace tessera::store {

// Keeps records by key. Best effort: anything may be gone at the next look. Any thread; bounded
// time. An error is never a reason to fail a request: it is a miss that is worth a log line.
class EmbeddingStore {
 public:
  virtual ~EmbeddingStore() = default;

  // nullopt on a miss. The record's key equals `key`. `most_rows`: whoever asks has no use for a
  // record of more, which then may be a miss without being read; 0: for any.
  virtual absl::StatusOr<std::optional<RecordPtr>> Get(const EmbeddingKey& key,
                                                       int64_t most_rows) = 0;
  absl::StatusOr<std::optional<RecordPtr>> Get(const EmbeddingKey& key) { return Get(key, 0); }

  // The same, at what of it is in this process's memory alone, and no look-up in the series: for
  // who has asked already. Here: all of it.
  virtual absl::StatusOr<std::optional<RecordPtr>> Peek(const EmbeddingKey& key) {
    return Get(key);
  }

  // Replaces what is there under record->key. `recompute_cost`: the time it took to make the
  // record, by which it is valued. Rows are finite (REQUIRES: RowsFromF32 or Decode made them).
  virtual absl::Status Put(RecordPtr record, absl::Duration recompute_cost) = 0;
};

}  // namespace tessera::store
