#pragma once

#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "common/store/embedding_store.h"

namespace tessera::store {

// Records in the memory of this process, shared with whoever took them. Bounded in bytes; what must
// go is what is worth least per byte and has not been asked for lately: GreedyDual-Size (Cao and
// Irani, 1997), priority = clock + cost / size, the clock being the priority that was last evicted.
// A record that was evicted is found as long as somebody holds it.
class MemoryStore final : public EmbeddingStore {
 public:
  // `capacity_bytes`: bound of the footprints of all records that the store holds; whoever holds
  // one bounds what lives beyond it. `metrics` is borrowed.
  MemoryStore(size_t capacity_bytes, metrics::Metrics& metrics);

  // Never an error. Never waits.
  using EmbeddingStore::Get;
  absl::StatusOr<std::optional<RecordPtr>> Get(const EmbeddingKey& key, int64_t most_rows) override;
  absl::StatusOr<std::optional<RecordPtr>> Peek(const EmbeddingKey& key) override;
  // RESOURCE_EXHAUSTED, reason RECORD_TOO_LARGE, when the record alone is beyond the bound; else it
  // is held when Put returns.
  absl::Status Put(RecordPtr record, absl::Duration recompute_cost) override;

  size_t bytes() const;
  size_t records() const;

 private:
  // Least priority first; among equals, the least recently used.
  using Rank = std::tuple<double, uint64_t, EmbeddingKey>;
  struct Entry {
    RecordPtr record;
    size_t bytes = 0;
    double cost_per_byte = 0;
    Rank rank;
  };

  Rank NextRank(const Entry& entry, const EmbeddingKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A use of it. Null on a miss.
  RecordPtr Find(const EmbeddingKey& key) ABSL_LOCKS_EXCLUDED(mutex_);
  RecordPtr Remove(const EmbeddingKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RecordPtr FindEvicted(const EmbeddingKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepTrackOf(const RecordPtr& evicted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t capacity_bytes_;
  const metrics::Counter hits_;
  const metrics::Counter misses_;

  mutable base::Mutex mutex_;
  absl::flat_hash_map<EmbeddingKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::set<Rank> ranks_ ABSL_GUARDED_BY(mutex_);
  // Evicted while somebody held them. Who has let go is swept out at the size `sweep_at_`.
  absl::flat_hash_map<EmbeddingKey, std::weak_ptr<const EmbeddingRecord>> evicted_
      ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  double clock_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::store
