#include "common/store/tiered_store.h"

#include <utility>

#include "common/base/clock.h"
#include "common/metrics/names.h"

namespace tessera::store {

TieredStore::TieredStore(EmbeddingStore& front, EmbeddingStore& back, const TieredOptions& options,
                         metrics::Metrics& metrics)
    : front_(front),
      back_(back),
      options_(options),
      dropped_(metrics.GetCounter(metrics::kEmbeddingCacheFailedWrites, {"dropped"})) {
  writer_ = std::thread([this] { Write(); });
}

TieredStore::~TieredStore() {
  Flush(options_.drain_timeout);
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
    dropped_.Increment(static_cast<double>(pending_.size()));
    pending_.clear();
    pending_changed_.SignalAll();
  }
  writer_.join();
}

RecordPtr TieredStore::FromFront(const EmbeddingKey& key) {
  auto found = front_.Get(key);
  return found.ok() && found->has_value() ? **std::move(found) : nullptr;
}

// The front values the record by what it takes to get it from there again.
RecordPtr TieredStore::FromBack(const EmbeddingKey& key, int64_t most_rows) {
  const absl::Time begin = base::RealClock().Now();
  auto found = back_.Get(key, most_rows);
  if (!found.ok() || !found->has_value()) return nullptr;
  RecordPtr record = **std::move(found);
  // One that does not fit there is still of use to who asked.
  front_.Put(record, base::RealClock().Now() - begin).IgnoreError();
  return record;
}

FoundRecord TieredStore::GetFrom(const EmbeddingKey& key, int64_t most_rows) {
  if (RecordPtr record = FromFront(key)) return {std::move(record), StoreTier::kLocal};
  std::shared_ptr<Flight> flight;
  {
    base::MutexLock lock(mutex_);
    auto& entry = flights_[key];
    if (entry != nullptr) {
      flight = entry;
      while (!flight->landed) landed_.Wait(mutex_);
      return {flight->record, StoreTier::kStore};
    }
    flight = entry = std::make_shared<Flight>();
  }
  RecordPtr record = FromBack(key, most_rows);
  base::MutexLock lock(mutex_);
  flight->landed = true;
  flight->record = record;
  flights_.erase(key);
  landed_.SignalAll();
  return {std::move(record), StoreTier::kStore};
}

absl::StatusOr<std::optional<RecordPtr>> TieredStore::Get(const EmbeddingKey& key,
                                                          int64_t most_rows) {
  FoundRecord found = GetFrom(key, most_rows);
  if (found.record == nullptr) return std::nullopt;
  return std::optional<RecordPtr>(std::move(found.record));
}

absl::Status TieredStore::Put(RecordPtr record, absl::Duration recompute_cost) {
  const absl::Status status = front_.Put(record, recompute_cost);
  const size_t bytes = record->footprint();
  base::MutexLock lock(mutex_);
  if (pending_bytes_ > 0 && pending_bytes_ + bytes > options_.queue_bytes) {
    dropped_.Increment();
    return status;
  }
  pending_.push_back({std::move(record), recompute_cost, bytes});
  pending_bytes_ += bytes;
  pending_changed_.SignalAll();
  return status;
}

bool TieredStore::Flush(absl::Duration timeout) {
  const absl::Time deadline = base::RealClock().Now() + timeout;
  base::MutexLock lock(mutex_);
  while (pending_bytes_ > 0) {
    const absl::Duration left = deadline - base::RealClock().Now();
    if (left <= absl::ZeroDuration()) return false;
    pending_changed_.WaitFor(mutex_, left);
  }
  return true;
}

void TieredStore::Write() {
  while (true) {
    Pending next;
    {
      base::MutexLock lock(mutex_);
      while (pending_.empty() && !stop_) pending_changed_.Wait(mutex_);
      if (pending_.empty()) return;
      next = std::move(pending_.front());
      pending_.pop_front();
    }
    // Best effort: the store counts and tells what it does not take.
    back_.Put(std::move(next.record), next.cost).IgnoreError();
    base::MutexLock lock(mutex_);
    pending_bytes_ -= next.bytes;
    pending_changed_.SignalAll();
  }
}

}  // namespace tessera::store
