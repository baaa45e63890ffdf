#include "services/decode/engine/row_fetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/bounded_queue.h"
#include "common/base/mutex.h"
#include "tests/services/decode/engine/fake_engine.h"
#include "tests/support/fake_clock.h"

namespace tessera::decode {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::FakeKey;
using testing::FakeRecord;
using testing::FakeStore;
using ::testing::Field;
using ::testing::ResultOf;

store::RecordPtr RecordOf(const WantedRows& wanted) { return wanted.found.record; }

FetchJob Job(SequenceId id, std::vector<uint8_t> pictures, size_t bytes = 1) {
  FetchJob job;
  job.id = id;
  job.bytes = bytes;
  for (const uint8_t picture : pictures) {
    job.pictures.push_back({static_cast<int32_t>(job.pictures.size()), {FakeKey(picture)}});
  }
  return job;
}

// Every read but of picture 1 hangs until its request has ended, as one of a replica that is
// silent.
class SilentPlace {
 public:
  RecordReader Reader() {
    return RecordReader([this](const WantedRecord& wanted, const ReadContext& asker) {
      return wanted.key == FakeKey(1) ? ReadRecord{FakeRecord(1, 1), RowTier::kOrigin}
                                      : Hang(asker);
    });
  }
  void AwaitReads(int count) {
    base::MutexLock lock(mutex_);
    while (reads_ < count) changed_.Wait(mutex_);
  }
  int reads() {
    base::MutexLock lock(mutex_);
    return reads_;
  }

 private:
  ReadRecord Hang(const ReadContext& asker) {
    const std::stop_callback wake(asker.ended, [this] {
      base::MutexLock lock(mutex_);
      changed_.SignalAll();
    });
    base::MutexLock lock(mutex_);
    ++reads_;
    changed_.SignalAll();
    while (!asker.ended.stop_requested()) changed_.Wait(mutex_);
    return {};
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  int reads_ ABSL_GUARDED_BY(mutex_) = 0;
};

class RowFetcherTest : public ::testing::Test {
 protected:
  RowFetcher::Done Collect() {
    return [this](FetchResult result) { results_.TryPush(std::move(result)); };
  }

  testing::FakeClock clock_;
  FakeStore store_;
  base::BoundedQueue<FetchResult> results_{1000};
};

TEST_F(RowFetcherTest, FoundAndMissingRecordsComeBackInTheOrderAsked) {
  ASSERT_TRUE(store_.Put(FakeRecord(1, 3), absl::ZeroDuration()).ok());
  ASSERT_TRUE(store_.Put(FakeRecord(3, 2), absl::ZeroDuration()).ok());
  RowFetcher fetcher({}, store_, clock_, Collect());
  fetcher.Fetch(Job(7, {1, 2, 3}));
  const FetchResult result = *results_.Pop();
  EXPECT_EQ(result.id, 7u);
  EXPECT_THAT(result.pictures,
              ElementsAre(Field(&WantedRows::picture, 0), Field(&WantedRows::picture, 1),
                          Field(&WantedRows::picture, 2)));
  EXPECT_EQ(result.pictures[0].found.record->rows, 3);
  EXPECT_EQ(result.pictures[1].found.record, nullptr);
  EXPECT_EQ(result.pictures[2].found.record->rows, 2);
}

TEST_F(RowFetcherTest, RowsComeAsADeviceTakesThem) {
  ASSERT_TRUE(store_.Put(FakeRecord(1, 3), absl::ZeroDuration()).ok());
  auto int8 = std::make_shared<store::EmbeddingRecord>();
  int8->key = FakeKey(2);
  int8->rows = 2;
  int8->width = 3;
  auto stored = store::MakeRows({1, -2, 127, 0, 0.5f, -0.5f}, 2, 3, DType::kI8).value();
  ASSERT_EQ(stored.dtype, DType::kI8);
  int8->dtype = stored.dtype;
  int8->data = std::move(stored.data);
  ASSERT_TRUE(store_.Put(int8, absl::ZeroDuration()).ok());
  RowFetcher fetcher({}, store_, clock_, Collect());
  fetcher.Fetch(Job(7, {1, 2, 3}));
  const FetchResult result = *results_.Pop();
  const std::vector<WantedRows>& read = result.pictures;
  EXPECT_EQ(read[0].rows.view.data, read[0].found.record->data.data());
  EXPECT_EQ(read[0].rows.view.dtype, DType::kF16);
  EXPECT_EQ(read[1].rows.view.dtype, DType::kF32);
  EXPECT_THAT(
      ToFloats(read[1].rows.view),
      ::testing::Pointwise(::testing::FloatNear(1e-5), {1.0f, -2.0f, 127.0f, 0.0f, 0.5f, -0.5f}));
  EXPECT_EQ(read[2].rows.view.data, nullptr);
}

TEST_F(RowFetcherTest, TheReaderIsAskedForKeyOriginAndShape) {
  WantedRecord asked;
  RowFetcher fetcher({.threads = 1},
                     RecordReader([&](const WantedRecord& wanted, const ReadContext&) {
                       asked = wanted;
                       return ReadRecord();
                     }),
                     clock_, Collect());
  FetchJob job;
  job.id = 3;
  job.pictures.push_back({5, {FakeKey(1), "vision-1:1", 7, 4}});
  fetcher.Fetch(std::move(job));
  const FetchResult result = *results_.Pop();
  EXPECT_EQ(result.pictures[0].picture, 5);
  EXPECT_EQ(asked.key, FakeKey(1));
  EXPECT_EQ(asked.origin, "vision-1:1");
  EXPECT_EQ(asked.rows, 7);
  EXPECT_EQ(asked.width, 4);
}

TEST_F(RowFetcherTest, ASlowReadDelaysNobodyElse) {
  ASSERT_TRUE(store_.Put(FakeRecord(1, 1), absl::ZeroDuration()).ok());
  store_.Block(FakeKey(9));
  RowFetcher fetcher({.threads = 2}, store_, clock_, Collect());
  fetcher.Fetch(Job(1, {9}));
  for (SequenceId id = 2; id < 50; ++id) fetcher.Fetch(Job(id, {1}));
  for (SequenceId id = 2; id < 50; ++id) EXPECT_EQ(results_.Pop()->id, id);
  EXPECT_EQ(results_.size(), 0u);
  store_.Release();
  EXPECT_EQ(results_.Pop()->id, 1u);
}

TEST_F(RowFetcherTest, RequestsThatHaveEndedLeaveTheThreadsToOthers) {
  SilentPlace place;
  RowFetcher fetcher({.threads = 2}, place.Reader(), clock_, Collect());
  std::vector<std::stop_source> ended(6);
  for (SequenceId id = 0; id < 6; ++id) {
    FetchJob job = Job(id, {7, 8, 9});
    job.asker.ended = ended[id].get_token();
    fetcher.Fetch(std::move(job));
  }
  fetcher.Fetch(Job(99, {1}));
  place.AwaitReads(2);
  for (SequenceId id = 6; id-- > 0;) ended[id].request_stop();
  for (int i = 0; i < 7; ++i) {
    const FetchResult result = *results_.Pop();
    if (result.id == 99) {
      EXPECT_NE(result.pictures[0].found.record, nullptr);
    } else {
      EXPECT_EQ(result.pictures.size(), 3u);
      EXPECT_THAT(result.pictures, Each(ResultOf(RecordOf, nullptr)));
    }
  }
  EXPECT_EQ(place.reads(), 2);  // their other pictures were not read, nor any of those that waited
}

TEST_F(RowFetcherTest, NothingIsReadBehindADeadline) {
  ASSERT_TRUE(store_.Put(FakeRecord(1, 1), absl::ZeroDuration()).ok());
  int gets = 0;
  store_.on_get = [&] {
    ++gets;
    clock_.Advance(absl::Seconds(1));
  };
  RowFetcher fetcher({.threads = 1}, store_, clock_, Collect());
  FetchJob job = Job(1, {1, 1, 1, 1});
  job.asker.deadline = clock_.Now() + absl::Seconds(2);
  fetcher.Fetch(std::move(job));
  const FetchResult result = *results_.Pop();
  EXPECT_EQ(gets, 2);
  EXPECT_NE(result.pictures[1].found.record, nullptr);
  EXPECT_EQ(result.pictures[2].found.record, nullptr);
  EXPECT_EQ(result.pictures[3].found.tier, RowTier::kNone);
  EXPECT_EQ(result.pictures.size(), 4u);
}

TEST_F(RowFetcherTest, BytesInFlightAreBoundedAndALargerJobRunsAlone) {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  store_.on_get = [&] {
    const int now = ++inside;
    int seen = most.load();
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
    --inside;
  };
  RowFetcher fetcher({.threads = 8, .max_bytes = 10}, store_, clock_, Collect());
  for (SequenceId id = 0; id < 200; ++id) fetcher.Fetch(Job(id, {1}, id % 3 == 0 ? 50 : 6));
  for (int i = 0; i < 200; ++i) results_.Pop();
  EXPECT_EQ(most.load(), 1);
}

TEST_F(RowFetcherTest, DyingDropsTheJobsThatHaveNotBegun) {
  store_.Block(FakeKey(9));
  std::atomic<int> gets{0};
  store_.on_get = [&] { ++gets; };
  {
    RowFetcher fetcher({.threads = 1}, store_, clock_, Collect());
    fetcher.Fetch(Job(1, {9}));
    for (SequenceId id = 2; id < 9; ++id) fetcher.Fetch(Job(id, {9}));
    while (gets.load() == 0) std::this_thread::yield();
    store_.Release();
  }
  EXPECT_LE(results_.size(), 8u);
}

}  // namespace
}  // namespace tessera::decode
