#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/store/embedding_store.h"
#include "services/vision/tower/vision_tower.h"
#include "tests/support/fake_clock.h"

namespace tessera::vision {

// A door that a thread waits at until a test opens it. Any thread.
class Gate {
 public:
  void Open() {
    base::MutexLock lock(mutex_);
    open_ = true;
    changed_.SignalAll();
  }
  void Pass() {
    base::MutexLock lock(mutex_);
    ++arrived_;
    changed_.SignalAll();
    while (!open_) changed_.Wait(mutex_);
  }
  void AwaitArrivals(int count) {
    base::MutexLock lock(mutex_);
    while (arrived_ < count) changed_.Wait(mutex_);
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Rows of two columns: the picture's first value, and `second`. Counts what it is asked.
class FakeTower final : public VisionTower {
 public:
  absl::StatusOr<std::vector<Tensor>> Encode(absl::Span<const TensorView> pictures) override {
    if (hook) hook();
    base::MutexLock lock(mutex_);
    batches_.push_back(pictures.size());
    if (!status.ok() && pictures.size() >= fails_from) return status;
    std::vector<Tensor> rows;
    for (const TensorView& picture : pictures) {
      Tensor tensor(DType::kF32, {1, 2});
      tensor.f32()[0] = ToFloats(picture)[0];
      tensor.f32()[1] = second;
      rows.push_back(std::move(tensor));
    }
    return rows;
  }
  std::vector<size_t> batches() {
    base::MutexLock lock(mutex_);
    return batches_;
  }
  // Between batches, too.
  void SetStatus(const absl::Status& value) {
    base::MutexLock lock(mutex_);
    status = value;
  }

  // Set before the first Encode.
  std::function<void()> hook;
  float second = 0.5f;
  absl::Status status;
  size_t fails_from = 1;  // pictures in a batch

 private:
  base::Mutex mutex_;
  std::vector<size_t> batches_ ABSL_GUARDED_BY(mutex_);
};

// Everything in a map; moves the clock for as long as a look or a write takes.
class FakeStore final : public store::EmbeddingStore {
 public:
  using store::EmbeddingStore::Get;
  absl::StatusOr<std::optional<store::RecordPtr>> Get(const store::EmbeddingKey& key,
                                                      int64_t) override {
    if (clock != nullptr) clock->Advance(get_takes);
    base::MutexLock lock(mutex_);
    ++gets_;
    if (broken) return absl::UnavailableError("no store");
    const auto found = records_.find(key);
    if (found == records_.end()) return std::nullopt;
    return found->second;
  }
  absl::Status Put(store::RecordPtr record, absl::Duration cost) override {
    if (put_hook) put_hook();
    if (clock != nullptr) clock->Advance(put_takes);
    base::MutexLock lock(mutex_);
    if (broken) return absl::UnavailableError("no store");
    last_cost_ = cost;
    records_[record->key] = std::move(record);
    return absl::OkStatus();
  }
  std::vector<store::RecordPtr> records() {
    base::MutexLock lock(mutex_);
    std::vector<store::RecordPtr> all;
    for (const auto& [key, record] : records_) all.push_back(record);
    return all;
  }
  int gets() {
    base::MutexLock lock(mutex_);
    return gets_;
  }
  absl::Duration last_cost() {
    base::MutexLock lock(mutex_);
    return last_cost_;
  }

  // Set before the first call.
  bool broken = false;
  testing::FakeClock* clock = nullptr;
  absl::Duration get_takes, put_takes;
  std::function<void()> put_hook;

 private:
  base::Mutex mutex_;
  std::map<store::EmbeddingKey, store::RecordPtr> records_ ABSL_GUARDED_BY(mutex_);
  int gets_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration last_cost_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::vision
