#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "common/store/memory_store.h"
#include "common/store/redis/redis_options.h"
#include "common/store/redis/redis_store.h"
#include "common/store/tiered_store.h"

namespace tessera::store {

struct StoreSetOptions {
  std::string store = "memory";     // or redis://…, rediss://… (redis_address.h)
  size_t memory_bytes = 24u << 20;  // of records in this process's memory
  std::string key_file;             // 32 bytes: records are sealed with it; empty: XXH3
  RedisOptions redis;               // its address and codec are set from above
};

// Where a process keeps records: its memory, and behind that, where it has one, a Redis.
class StoreSet {
 public:
  // INVALID_ARGUMENT names the flag. Does not wait for Redis. `metrics` outlives the set.
  static absl::StatusOr<std::unique_ptr<StoreSet>> Create(StoreSetOptions options,
                                                          metrics::Metrics& metrics);

  MemoryStore& local() { return *memory_; }
  // What all processes share; null without a Redis.
  TieredStore* shared() { return tiered_.get(); }
  // The whole.
  EmbeddingStore& all() {
    if (tiered_ != nullptr) return *tiered_;
    return *memory_;
  }
  const RecordCodec& codec() const { return codec_; }
  // From now on a record of another width is none of ours, whoever wrote it.
  void ExpectRowWidth(int64_t width) {
    if (redis_ != nullptr) redis_->ExpectRowWidth(width);
  }

 private:
  StoreSet() = default;

  RecordCodec codec_;
  std::unique_ptr<MemoryStore> memory_;
  std::unique_ptr<RedisStore> redis_;
  std::unique_ptr<TieredStore> tiered_;  // last: it uses both
};

}  // namespace tessera::store
