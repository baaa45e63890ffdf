#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "common/store/embedding_store.h"
#include "common/store/record_codec.h"
#include "common/store/redis/redis_options.h"
#include "common/store/redis/redis_pool.h"

namespace tessera::store {

// Records in a Redis that other processes share, under tessera:emb:v1:<key in hex>. What comes from
// there is checked before it is believed. With a MAC key (RecordCodec::WithKey) whoever else can
// write to it can only cause misses; without one, the checksum guards against accidents alone, and
// whoever can write to it can forge the rows of any tenant's pictures. Any thread.
//
// Whatever goes wrong is a miss: while Redis is down, at once; else within operation_timeout (and a
// value's share; connect_timeout where none is open; as long again where all connections are lent).
// One log line per change of state, the rest in metrics with tier="store".
class RedisStore final : public EmbeddingStore {
 public:
  // INVALID_ARGUMENT, reason BAD_OPTION. Does not wait for Redis: the store is down until its pool
  // has connected. `metrics` outlives the store.
  static absl::StatusOr<std::unique_ptr<RedisStore>> Create(RedisOptions options,
                                                            metrics::Metrics& metrics);

  // Never an error. A record that is broken for everybody is deleted, others are left alone. A
  // value that is longer than `most_rows` of the expected width can be is not read.
  using EmbeddingStore::Get;
  absl::StatusOr<std::optional<RecordPtr>> Get(const EmbeddingKey& key, int64_t most_rows) override;
  // UNAVAILABLE, DEADLINE_EXCEEDED or DATA_LOSS: Redis is down, slow or talks nonsense.
  // RESOURCE_EXHAUSTED: it refuses to write (reason REDIS_REFUSED), or the record is beyond
  // max_value_bytes (RECORD_TOO_LARGE). `recompute_cost` is not used: Redis evicts as it is told.
  absl::Status Put(RecordPtr record, absl::Duration recompute_cost) override;

  // What lies under `key`, unchecked, with the error where there is one; nullopt: nothing. For
  // people: it counts as no look-up.
  absl::StatusOr<std::optional<RecordPieces>> Read(const EmbeddingKey& key) {
    return Read(key, options_.max_value_bytes);
  }

  // OK while it is up, else why not: REDIS_CONNECTING before the first try has ended.
  absl::Status state() const { return pool_->state(); }
  bool up() const { return pool_->up(); }
  // The state once the first try has ended, or `timeout` has.
  absl::Status FirstState(absl::Duration timeout) { return pool_->FirstState(timeout); }
  // Whether it is up within `timeout`.
  bool WaitUntilUp(absl::Duration timeout) { return pool_->WaitUntilUp(timeout); }

  // From now on a record of another width is a miss, counted and left alone. Once the model is
  // known.
  void ExpectRowWidth(int64_t width) { row_width_ = width; }

 private:
  absl::StatusOr<std::optional<RecordPieces>> Read(const EmbeddingKey& key, size_t most_bytes);
  // Series, made at the start.
  struct Series {
    explicit Series(metrics::Metrics& metrics);
    metrics::Counter hits, misses, errors, rejected;
    metrics::Histogram get, put, del;
    metrics::Counter bytes_read, bytes_written;
    metrics::Counter writes_refused, writes_unavailable, writes_too_large;
  };

  RedisStore(RedisOptions options, std::unique_ptr<RedisTls> tls, metrics::Metrics& metrics);

  absl::Status Write(const EmbeddingKey& key, absl::string_view bytes);
  void Delete(const EmbeddingKey& key);
  // An error for the reply of Redis; the lease is broken where the server is of no use for now.
  absl::Status Refused(RedisPool::Lease& lease, const RedisReply& reply);
  void TellRejected(const absl::Status& why);
  // How the server takes one kind of command, as the log knows it.
  enum class Trouble { kNone, kRefused, kSenseless };
  struct Told {
    Trouble trouble = Trouble::kNone;
    absl::Time last = absl::InfinitePast();  // of any trouble
    int senseless = 0;                       // answers in a row
  };
  // Takes note of how a read or a write ended.
  void Tell(const absl::Status& status, bool write);

  const RedisOptions options_;
  const std::unique_ptr<RedisTls> tls_;  // null: plain
  const Series series_;
  std::atomic<int64_t> row_width_ = 0;       // 0: any
  std::atomic<uint32_t> told_verdicts_ = 0;  // a bit for each RecordVerdict that was logged

  base::Mutex mutex_;
  Told reads_ ABSL_GUARDED_BY(mutex_);
  Told writes_ ABSL_GUARDED_BY(mutex_);

  const std::unique_ptr<RedisPool> pool_;  // uses what is above
};

}  // namespace tessera::store
