// FAULTS B077: a Redis that is killed and comes back, again and again.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/store/redis/redis_store.h"
#include "tests/common/store/redis/redis_fixture.h"
#include "tests/support/redis_server.h"

namespace tessera::store {
namespace {

using testing::RedisServer;

constexpr int kKills = 200;
constexpr int kThreads = 8;
constexpr int kRecords = 20;

bool Await(const std::function<bool()>& condition) {
  const absl::Time deadline = base::RealClock().Now() + kLong;
  while (!condition() && base::RealClock().Now() < deadline) std::this_thread::yield();
  return condition();
}

// Threads that write and read all the time, and what came of it.
class Clients {
 public:
  explicit Clients(EmbeddingStore& store) {
    for (int i = 0; i < kRecords; ++i) records_.push_back(NumberedRecord(i));
    for (int thread = 0; thread < kThreads; ++thread) {
      threads_.emplace_back([this, &store, thread] {
        for (int i = thread; !stop_; ++i) AskOnce(store, i % kRecords);
      });
    }
  }
  ~Clients() { Stop(); }
  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::atomic<int> hits = 0, misses = 0, wrong = 0, unwritten = 0;

 private:
  void AskOnce(EmbeddingStore& store, int number) {
    unwritten += !store.Put(records_[number], absl::ZeroDuration()).ok();
    const RecordPtr record = Find(store, number);
    ++(record != nullptr ? hits : misses);
    wrong += record != nullptr && !Same(record, records_[number]);
    if (record == nullptr) std::this_thread::yield();
  }

  std::vector<RecordPtr> records_;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

TEST(RedisRestartTest, KillsUnderEightWritersAreMissesAndItComesBackByItself) {
  metrics::Metrics metrics("m");
  RedisServer server;
  RedisOptions options = PatientOptions(server.Url());
  options.ping_interval = absl::Milliseconds(5);
  ::testing::internal::CaptureStderr();
  std::unique_ptr<RedisStore> store = RedisStore::Create(options, metrics).value();
  ASSERT_TRUE(store->WaitUntilUp(kLong));
  Clients clients(*store);
  for (int kill = 0; kill < kKills && !::testing::Test::HasFailure(); ++kill) {
    ASSERT_TRUE(store->WaitUntilUp(kLong)) << "up, kill " << kill;
    const int hits = clients.hits;
    EXPECT_TRUE(Await([&] { return clients.hits > hits; })) << "up, kill " << kill;
    server.Kill();
    EXPECT_TRUE(Await([&] { return !store->up(); })) << "down " << kill;
    const int misses = clients.misses;
    EXPECT_TRUE(Await([&] { return clients.misses >= misses + kThreads; })) << "down " << kill;
    server.Start();
  }
  EXPECT_TRUE(store->WaitUntilUp(kLong));
  clients.Stop();
  EXPECT_TRUE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1)));
  store.reset();  // behind it, all is told
  const std::string log = ::testing::internal::GetCapturedStderr();
  std::cout << kKills << " kills, " << clients.hits << " hits, " << clients.misses << " misses, "
            << clients.unwritten << " writes lost, " << CountOf(log, " is down") << " lines\n";
  EXPECT_EQ(clients.wrong, 0);
  EXPECT_EQ(Lookups(metrics, "rejected"), 0);
  EXPECT_GT(clients.unwritten, 0);
  EXPECT_EQ(FailedWrites(metrics, "unavailable"), clients.unwritten);
  // Told of, whoever saw it, and ever less often.
  EXPECT_GE(CountOf(log, " is down"), 1);
  EXPECT_LE(CountOf(log, " is down"), kKills / 10);
  EXPECT_EQ(CountOf(log, " is up"), CountOf(log, " is down") + 1);
}

}  // namespace
}  // namespace tessera::store
