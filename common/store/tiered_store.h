#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "common/store/embedding_store.h"

namespace tessera::store {

// Who had a record.
enum class StoreTier { kLocal, kStore };

struct FoundRecord {
  RecordPtr record;  // null: nobody has it
  StoreTier tier = StoreTier::kLocal;
};

struct TieredOptions {
  // Of records that wait to be written to the slow tier, each kept alive until then. What does not
  // fit is dropped there, and counted; the front has it. One record is taken whatever its size.
  size_t queue_bytes = size_t{64} << 20;
  // For what waits at the end.
  absl::Duration drain_timeout = absl::Seconds(2);
};

// Memory in front of a slower store that others share. Both have the same bytes. Any thread.
class TieredStore final : public EmbeddingStore {
 public:
  // `front` answers without waiting; both, and `metrics`, outlive this.
  TieredStore(EmbeddingStore& front, EmbeddingStore& back, const TieredOptions& options,
              metrics::Metrics& metrics);
  // Waits drain_timeout for the queue, and for the write that is under way.
  ~TieredStore() override;

  // The front, then the back, whose record then is in the front too. Calls for one key share one
  // look at the back; errors of either are a miss. Waits as long as the back does.
  FoundRecord GetFrom(const EmbeddingKey& key, int64_t most_rows = 0);
  // The same. Never an error.
  using EmbeddingStore::Get;
  absl::StatusOr<std::optional<RecordPtr>> Get(const EmbeddingKey& key, int64_t most_rows) override;
  // The front's.
  absl::StatusOr<std::optional<RecordPtr>> Peek(const EmbeddingKey& key) override {
    return front_.Peek(key);
  }
  // In the front when it returns, with the front's status; written to the back by a thread of its
  // own. Never waits.
  absl::Status Put(RecordPtr record, absl::Duration recompute_cost) override;

  // Whether all that was put by now was written or has failed within `timeout`.
  bool Flush(absl::Duration timeout);

 private:
  // A look at the back that several calls wait for.
  struct Flight {
    bool landed = false;
    RecordPtr record;
  };
  struct Pending {
    RecordPtr record;
    absl::Duration cost;
    size_t bytes = 0;
  };

  RecordPtr FromFront(const EmbeddingKey& key);
  RecordPtr FromBack(const EmbeddingKey& key, int64_t most_rows);
  void Write();

  EmbeddingStore& front_;
  EmbeddingStore& back_;
  const TieredOptions options_;
  const metrics::Counter dropped_;

  base::Mutex mutex_;
  base::CondVar landed_;
  base::CondVar pending_changed_;
  absl::flat_hash_map<EmbeddingKey, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  size_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // with what is being written
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;
};

}  // namespace tessera::store
