#include "common/store/tiered_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "common/base/clock.h"
#include "common/store/memory_store.h"
#include "tests/common/store/redis/redis_fixture.h"

namespace tessera::store {
namespace {

// A slow tier that a test holds up and counts.
class FakeBack final : public EmbeddingStore {
 public:
  using EmbeddingStore::Get;
  absl::StatusOr<std::optional<RecordPtr>> Get(const EmbeddingKey& key, int64_t) override {
    ++gets;
    WaitUntilOpen();
    base::MutexLock lock(mutex_);
    if (fails) return absl::UnavailableError("down");
    const auto it = records_.find(key);
    if (it == records_.end()) return std::nullopt;
    return std::optional<RecordPtr>(it->second);
  }
  absl::Status Put(RecordPtr record, absl::Duration) override {
    ++puts;
    WaitUntilOpen();
    base::MutexLock lock(mutex_);
    if (fails) return absl::UnavailableError("down");
    records_[record->key] = std::move(record);
    return absl::OkStatus();
  }
  void Close() {
    base::MutexLock lock(mutex_);
    open_ = false;
  }
  void OpenAgain() {
    base::MutexLock lock(mutex_);
    open_ = true;
    opened_.SignalAll();
  }

  std::atomic<bool> fails = false;
  std::atomic<int> gets = 0;
  std::atomic<int> puts = 0;

 private:
  void WaitUntilOpen() {
    base::MutexLock lock(mutex_);
    while (!open_) opened_.Wait(mutex_);
  }

  base::Mutex mutex_;
  base::CondVar opened_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  absl::flat_hash_map<EmbeddingKey, RecordPtr> records_ ABSL_GUARDED_BY(mutex_);
};

bool WaitFor(const std::function<bool()>& condition) {
  const absl::Time deadline = base::RealClock().Now() + kLong;
  while (!condition() && base::RealClock().Now() < deadline) std::this_thread::yield();
  return condition();
}

class TieredStoreTest : public ::testing::Test {
 protected:
  metrics::Metrics metrics_{"m"};
  MemoryStore front_{1 << 20, metrics_};
  FakeBack back_;
};

TEST_F(TieredStoreTest, TellsWhichTierAnsweredAndKeepsWhatTheSlowOneHad) {
  TieredStore store(front_, back_, {}, metrics_);
  EXPECT_EQ(store.GetFrom(NumberedKey(1)).record, nullptr);
  ASSERT_TRUE(back_.Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  const FoundRecord far = store.GetFrom(NumberedKey(1));
  EXPECT_TRUE(Same(far.record, NumberedRecord(1)));
  EXPECT_EQ(far.tier, StoreTier::kStore);
  const FoundRecord near = store.GetFrom(NumberedKey(1));
  EXPECT_EQ(near.record, far.record);
  EXPECT_EQ(near.tier, StoreTier::kLocal);
  EXPECT_EQ(back_.gets, 2);
  EXPECT_EQ(Find(store, 1), far.record);
}

TEST_F(TieredStoreTest, APeekDoesNotAskTheSlowTier) {
  TieredStore store(front_, back_, {}, metrics_);
  ASSERT_TRUE(back_.Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  EXPECT_FALSE(store.Peek(NumberedKey(1))->has_value());
  EXPECT_EQ(back_.gets, 0);
  const RecordPtr known = store.GetFrom(NumberedKey(1)).record;
  EXPECT_EQ(**store.Peek(NumberedKey(1)), known);
}

TEST_F(TieredStoreTest, APutIsThereAtOnceAndWrittenBehind) {
  back_.Close();
  TieredStore store(front_, back_, {}, metrics_);
  ASSERT_TRUE(store.Put(NumberedRecord(1), absl::Seconds(1)).ok());  // does not wait for the back
  EXPECT_EQ(store.GetFrom(NumberedKey(1)).tier, StoreTier::kLocal);
  EXPECT_FALSE(store.Flush(absl::Milliseconds(1)));
  back_.OpenAgain();
  ASSERT_TRUE(store.Flush(kLong));
  EXPECT_TRUE(Same(Find(back_, 1), NumberedRecord(1)));
}

TEST_F(TieredStoreTest, WhatDoesNotFitTheQueueIsDroppedAndCounted) {
  back_.Close();
  TieredOptions options;
  options.queue_bytes = 3 * NumberedRecord(0)->footprint();
  TieredStore store(front_, back_, options, metrics_);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store.Put(NumberedRecord(i), absl::Seconds(1)).ok());
  EXPECT_EQ(FailedWrites(metrics_, "dropped"), 7);
  back_.OpenAgain();
  ASSERT_TRUE(store.Flush(kLong));
  EXPECT_EQ(back_.puts, 3);
  for (int i = 0; i < 10; ++i) EXPECT_NE(Find(front_, i), nullptr);
  ASSERT_TRUE(store.Put(NumberedRecord(11), absl::Seconds(1)).ok());
  ASSERT_TRUE(store.Flush(kLong));
  EXPECT_NE(Find(back_, 11), nullptr);
}

TEST_F(TieredStoreTest, ARecordLargerThanTheQueueIsWrittenAlone) {
  TieredOptions options;
  options.queue_bytes = 1;
  TieredStore store(front_, back_, options, metrics_);
  ASSERT_TRUE(store.Put(NumberedRecord(1), absl::Seconds(1)).ok());
  ASSERT_TRUE(store.Flush(kLong));
  EXPECT_NE(Find(back_, 1), nullptr);
}

TEST_F(TieredStoreTest, EqualKeysShareOneLook) {
  ASSERT_TRUE(back_.Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  back_.Close();
  TieredStore store(front_, back_, {}, metrics_);
  const double before = Series(metrics_,
                               "tessera_embedding_cache_lookups_total{model_name=\"m\","
                               "result=\"miss\",tier=\"local\"}");
  std::atomic<int> same = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const FoundRecord found = store.GetFrom(NumberedKey(1));
      same += Same(found.record, NumberedRecord(1)) && found.tier == StoreTier::kStore;
    });
  }
  // All have missed the front; whoever comes later than the look finds the front filled.
  EXPECT_TRUE(WaitFor([&] {
    return Series(metrics_,
                  "tessera_embedding_cache_lookups_total{model_name=\"m\","
                  "result=\"miss\",tier=\"local\"}") == before + 8;
  }));
  EXPECT_TRUE(WaitFor([this] { return back_.gets == 1; }));
  EXPECT_EQ(back_.gets, 1);  // nor a second one meanwhile
  back_.OpenAgain();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 8);
}

TEST_F(TieredStoreTest, AFailingBackIsAMissAndHoldsNoPut) {
  back_.fails = true;
  TieredStore store(front_, back_, {}, metrics_);
  EXPECT_EQ(Find(store, 1), nullptr);
  ASSERT_TRUE(store.Put(NumberedRecord(2), absl::Seconds(1)).ok());
  ASSERT_TRUE(store.Flush(kLong));
  EXPECT_NE(Find(store, 2), nullptr);
}

TEST_F(TieredStoreTest, ARecordThatTheFrontCannotHoldIsHandedOverAllTheSame) {
  MemoryStore small(10, metrics_);
  TieredStore store(small, back_, {}, metrics_);
  EXPECT_FALSE(store.Put(NumberedRecord(1), absl::Seconds(1)).ok());
  ASSERT_TRUE(store.Flush(kLong));
  EXPECT_TRUE(Same(Find(store, 1), NumberedRecord(1)));
}

TEST_F(TieredStoreTest, TheEndWritesWhatWaits) {
  {
    TieredOptions options;
    options.drain_timeout = kLong;
    TieredStore store(front_, back_, options, metrics_);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(store.Put(NumberedRecord(i), absl::Seconds(1)).ok());
  }
  EXPECT_EQ(back_.puts, 20);
}

TEST_F(TieredStoreTest, TheEndDropsWhatTheBackDoesNotTakeInTime) {
  back_.Close();
  std::thread later;
  {
    TieredOptions options;
    options.drain_timeout = absl::ZeroDuration();
    TieredStore store(front_, back_, options, metrics_);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(store.Put(NumberedRecord(i), absl::Seconds(1)).ok());
    ASSERT_TRUE(WaitFor([this] { return back_.puts == 1; }));
    // The one write that is under way ends only after the others were given up.
    later = std::thread([this] {
      EXPECT_TRUE(WaitFor([this] { return FailedWrites(metrics_, "dropped") == 19; }));
      back_.OpenAgain();
    });
  }
  later.join();
  EXPECT_EQ(back_.puts, 1);
}

TEST_F(TieredStoreTest, ManyThreadsFindOnlyWhatWasPut) {
  TieredStore store(front_, back_, {}, metrics_);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(static_cast<uint32_t>(thread));
      for (int i = 0; i < 300; ++i) {
        const int number = static_cast<int>(random() % 10);
        if (random() % 2 == 0) {
          store.Put(NumberedRecord(number), absl::Seconds(1)).IgnoreError();
        } else {
          const RecordPtr record = Find(store, number);
          wrong += record != nullptr && !Same(record, NumberedRecord(number));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tessera::store
