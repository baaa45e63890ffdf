#pragma once

#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/store/embedding_record.h"

namespace tessera::vision {

// Records that open calls keep alive, so that whoever was told of one finds it in the store (which
// finds what is held). Bytes are counted once for a key, however many hold it. Any thread.
class HeldRecords {
 public:
  explicit HeldRecords(size_t max_bytes) : max_bytes_(max_bytes) {}

  // One record held; gives it back when it goes. The HeldRecords outlives it.
  class Hold {
   public:
    Hold(HeldRecords& owner, store::RecordPtr record);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    HeldRecords& owner_;
    const store::RecordPtr record_;
  };

  // To be asked before the work for a record: RESOURCE_EXHAUSTED (QUEUE_FULL, with retry) while
  // max_bytes are held and `key` is not among them. What is under way by then comes on top, so the
  // bytes held are bounded by max_bytes and the records of all pending pictures.
  absl::Status Admit(const store::EmbeddingKey& key) const;

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
