#include "common/store/memory_store.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/metrics/names.h"

namespace tessera::store {
namespace {

constexpr size_t kLeastSweep = 64;

double FiniteSeconds(absl::Duration cost) {
  const double seconds = absl::ToDoubleSeconds(cost);
  return std::isfinite(seconds) ? std::max(seconds, 0.0) : 0.0;
}

}  // namespace

MemoryStore::MemoryStore(size_t capacity_bytes, metrics::Metrics& metrics)
    : capacity_bytes_(capacity_bytes),
      hits_(metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"local", "hit"})),
      misses_(metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"local", "miss"})) {
  metrics.GetGauge(metrics::kEmbeddingCacheUp, {"local"}).Set(1);
}

MemoryStore::Rank MemoryStore::NextRank(const Entry& entry, const EmbeddingKey& key) {
  return {clock_ + entry.cost_per_byte, ++uses_, key};
}

RecordPtr MemoryStore::Remove(const EmbeddingKey& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  RecordPtr record = std::move(it->second.record);
  bytes_ -= it->second.bytes;
  ranks_.erase(it->second.rank);
  entries_.erase(it);
  return record;
}

RecordPtr MemoryStore::FindEvicted(const EmbeddingKey& key) {
  const auto it = evicted_.find(key);
  if (it == evicted_.end()) return nullptr;
  RecordPtr record = it->second.lock();
  if (record == nullptr) evicted_.erase(it);
  return record;
}

void MemoryStore::KeepTrackOf(const RecordPtr& evicted) {
  if (evicted.use_count() == 1) return;  // ours: nobody else can come by it any more
  if (evicted_.size() >= sweep_at_) {
    absl::erase_if(evicted_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max(kLeastSweep, 2 * evicted_.size());
  }
  evicted_[evicted->key] = evicted;
}

RecordPtr MemoryStore::Find(const EmbeddingKey& key) {
  base::MutexLock lock(mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return FindEvicted(key);
  Entry& entry = it->second;
  ranks_.erase(entry.rank);
  entry.rank = NextRank(entry, key);
  ranks_.insert(entry.rank);
  return entry.record;
}

absl::StatusOr<std::optional<RecordPtr>> MemoryStore::Peek(const EmbeddingKey& key) {
  RecordPtr record = Find(key);
  if (record == nullptr) return std::nullopt;
  return std::optional<RecordPtr>(std::move(record));
}

absl::StatusOr<std::optional<RecordPtr>> MemoryStore::Get(const EmbeddingKey& key, int64_t) {
  RecordPtr record = Find(key);
  (record != nullptr ? hits_ : misses_).Increment();
  if (record == nullptr) return std::nullopt;
  return std::optional<RecordPtr>(std::move(record));
}

absl::Status MemoryStore::Put(RecordPtr record, absl::Duration recompute_cost) {
  const EmbeddingKey key = record->key;
  Entry entry;
  entry.bytes = record->footprint();
  entry.cost_per_byte = FiniteSeconds(recompute_cost) / static_cast<double>(entry.bytes);
  entry.record = std::move(record);
  if (entry.bytes > capacity_bytes_) {
    return base::Error(absl::StatusCode::kResourceExhausted, "RECORD_TOO_LARGE",
                       absl::StrCat("an embedding record of ", entry.bytes,
                                    " bytes does not fit a store of ", capacity_bytes_));
  }
  std::vector<RecordPtr> gone;  // freed without the lock
  base::MutexLock lock(mutex_);
  gone.push_back(Remove(key));
  while (bytes_ + entry.bytes > capacity_bytes_) {
    const auto [priority, use, least] = *ranks_.begin();
    clock_ = priority;
    gone.push_back(Remove(least));
    KeepTrackOf(gone.back());
  }
  entry.rank = NextRank(entry, key);
  ranks_.insert(entry.rank);
  bytes_ += entry.bytes;
  entries_.emplace(key, std::move(entry));
  return absl::OkStatus();
}

size_t MemoryStore::bytes() const {
  base::MutexLock lock(mutex_);
  return bytes_;
}

size_t MemoryStore::records() const {
  base::MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace tessera::store
