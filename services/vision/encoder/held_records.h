#pragma once

#include <cstddef>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/store/embedding_record.h"

namespace tessera::vision {

// Records that open calls keep alive, so that whoever was told of one finds it in the store (which
// finds what is held), and the room for those that are being made. Bytes are counted once for a
// key, however many hold it. Any thread.
class HeldRecords {
 public:
  explicit HeldRecords(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Room for one record, then the record; gives it back when it goes. One thread at a time; the
  // HeldRecords outlives it.
  class Hold {
   public:
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // The record is there. REQUIRES: it has the key of the room; once.
    void Keep(store::RecordPtr record);

   private:
    friend class HeldRecords;
    Hold(HeldRecords& owner, const store::EmbeddingKey& key) : owner_(owner), key_(key) {}

    HeldRecords& owner_;
    const store::EmbeddingKey key_;
    store::RecordPtr record_;
  };

  // Before the work for a record of some `expected` bytes (0: not known). RESOURCE_EXHAUSTED
  // (QUEUE_FULL, with retry) where they would be more than max_bytes with what is held, unless
  // `key` is among that, or nothing is held. So what is held is bounded by max_bytes as far as
  // `expected` is true.
  absl::StatusOr<std::unique_ptr<Hold>> Admit(const store::EmbeddingKey& key, size_t expected);

  size_t bytes() const;

 private:
  struct Entry {
    size_t bytes = 0;
    int holders = 0;
  };

  const size_t max_bytes_;
  mutable base::Mutex mutex_;
  absl::flat_hash_map<store::EmbeddingKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::vision
