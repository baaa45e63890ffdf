#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/store/redis/redis_store.h"
#include "tests/common/store/redis/redis_fixture.h"
#include "tests/support/fake_redis.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/redis_server.h"

namespace tessera::store {
namespace {

using testing::FakeRedis;
using testing::FaultProxy;
using testing::ProxyFaults;
using testing::RedisServer;
using Words = std::vector<std::string>;

std::string UrlOf(int port) { return absl::StrCat("redis://127.0.0.1:", port); }

std::string Bulk(const std::string& bytes) {
  return absl::StrCat("$", bytes.size(), "\r\n", bytes, "\r\n");
}

class RedisFaultsTest : public ::testing::Test {
 protected:
  metrics::Metrics metrics_{"m"};
  const std::string good_ = *RecordCodec().Encode(*NumberedRecord(1));
};

// Each reply comes once, then the right one: it must be read on a connection that is clean again.
TEST_F(RedisFaultsTest, WhatIsNoAnswerIsAMissAndTheNextOneIsRight) {
  const std::string cut = Bulk(good_).substr(0, 300);
  const std::string nonsense[] = {
      cut,
      "$",
      "",
      "$99999999999999999999\r\n",
      "$536870913\r\n",
      "$-7\r\n",
      "$12x\r\n",
      "$5\r\nhello\n\n",
      Bulk(good_) + Bulk(good_),
      Bulk(good_) + "+",
      "*1\r\n" + Bulk(good_),
      "*2147483647\r\n",
      "*-1\r\n",
      "+OK\r\n",
      ":1\r\n",
      "?what\r\n",
      "\r\n",
      std::string(100'000, '+'),
      std::string(1000, '\0') + "\r\n",
      "HTTP/1.1 400 Bad Request\r\n\r\n",
  };
  for (const std::string& reply : nonsense) {
    std::atomic<int> gets = 0;
    const FakeRedis redis([&](const Words& words) -> std::optional<std::string> {
      if (words[0] != "GET") return "+OK\r\n";
      return gets++ == 0 ? reply : Bulk(good_);
    });
    RedisOptions options = PatientOptions(UrlOf(redis.port()));
    options.operation_timeout = absl::Milliseconds(100);  // for those that never end
    const auto store = OpenUp(options, metrics_);
    EXPECT_EQ(Find(*store, 1), nullptr) << reply.substr(0, 40);
    RecordPtr next;
    while (next == nullptr) {  // the machine may be slow
      ASSERT_TRUE(store->WaitUntilUp(kLong));
      next = Find(*store, 1);
    }
    EXPECT_TRUE(Same(next, NumberedRecord(1))) << reply.substr(0, 40);
  }
  EXPECT_GE(Lookups(metrics_, "error"), std::size(nonsense));
}

TEST_F(RedisFaultsTest, AServerThatMakesNoSenseIsToldOnce) {
  for (const std::optional<std::string>& reply :
       {std::optional<std::string>("$12x\r\n"), std::optional<std::string>()}) {
    const FakeRedis redis([&reply](const Words& words) -> std::optional<std::string> {
      if (words[0] == "GET") return reply;
      return "+OK\r\n";
    });
    const auto store = OpenUp(PatientOptions(UrlOf(redis.port())), metrics_);
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 10; ++i) EXPECT_EQ(Find(*store, 1), nullptr);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(CountOf(log, "\n"), 1) << log;
    EXPECT_EQ(CountOf(log, "makes no sense when asked to read, each is a miss: "), 1) << log;
    EXPECT_EQ(UpGauge(metrics_), 1);
  }
}

TEST_F(RedisFaultsTest, AnsweredErrorsAreMissesOnAConnectionThatStays) {
  const FakeRedis redis([](const Words& words) -> std::optional<std::string> {
    return words[0] == "GET" ? "-NOPERM this user has no permissions\r\n"
                             : "-MISCONF Redis is configured to save\r\n";
  });
  const auto store = OpenUp(PatientOptions(UrlOf(redis.port())), metrics_);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Find(*store, i), nullptr);
    EXPECT_EQ(base::ReasonOf(store->Put(NumberedRecord(i), absl::ZeroDuration())), "REDIS_REFUSED");
  }
  EXPECT_EQ(Lookups(metrics_, "error"), 10);
  EXPECT_EQ(FailedWrites(metrics_, "refused"), 10);
  EXPECT_EQ(redis.connections(), 1);
  EXPECT_TRUE(store->up());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log, "refuses to read: NOPERM"), 1) << log;
  EXPECT_EQ(CountOf(log, "refuses to write: MISCONF"), 1) << log;
}

TEST_F(RedisFaultsTest, AServerThatRepeatsThePasswordDoesNotBringItIntoTheLog) {
  const FakeRedis redis([](const Words& words) -> std::optional<std::string> {
    return absl::StrCat("-ERR unknown '", words[0], "': '", words.back(), "'\r\n");
  });
  ::testing::internal::CaptureStderr();
  {
    RedisOptions options = PatientOptions(UrlOf(redis.port()));
    options.address.password = "hush";
    const auto store = RedisStore::Create(options, metrics_);
    ASSERT_TRUE(store.ok()) << store.status();
    (*store)->FirstState(kLong).IgnoreError();
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log, "AUTH: ERR"), 1) << log;
  EXPECT_EQ(CountOf(log, "hush"), 0) << log;
}

TEST_F(RedisFaultsTest, AServerThatCanDoNothingForNowIsLeftAloneUntilItCan) {
  for (const char* error :
       {"-LOADING Redis is loading the dataset in memory\r\n",
        "-NOAUTH Authentication required.\r\n", "-MASTERDOWN Link with MASTER is down\r\n",
        "-BUSY Redis is busy running a script\r\n"}) {
    std::atomic<int> gets = 0;
    const FakeRedis redis([&](const Words& words) -> std::optional<std::string> {
      return gets++ == 0 ? error : Bulk(good_);
    });
    RedisOptions options = PatientOptions(UrlOf(redis.port()));
    {
      options.min_backoff = options.max_backoff = absl::Hours(1);
      const auto store = OpenUp(options, metrics_);
      EXPECT_EQ(Find(*store, 1), nullptr);
      EXPECT_FALSE(store->up()) << error;
      EXPECT_EQ(UpGauge(metrics_), 0);
      EXPECT_EQ(Find(*store, 1), nullptr);
      EXPECT_EQ(gets, 1) << error;  // nobody was asked the second time
    }
    gets = 0;
    options.min_backoff = options.max_backoff = absl::Milliseconds(1);
    const auto store = OpenUp(options, metrics_);
    EXPECT_EQ(Find(*store, 1), nullptr);
    ASSERT_TRUE(store->WaitUntilUp(kLong));
    EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1)));
  }
}

TEST_F(RedisFaultsTest, AServerThatIsDownIsNotStormed) {
  const FakeRedis redis([](const Words& words) { return std::nullopt; });
  RedisOptions options = PatientOptions(UrlOf(redis.port()) + "/1");  // hangs up at SELECT
  options.min_backoff = absl::Milliseconds(100);
  options.max_backoff = absl::Hours(1);
  auto store = RedisStore::Create(options, metrics_);
  ASSERT_TRUE(store.ok()) << store.status();
  for (int i = 0; i < 10'000; ++i) EXPECT_EQ(Find(**store, i), nullptr);
  // 50 ms, 100, 200, ... at least: a slow machine has time for more, not for many more.
  EXPECT_LE(redis.connections(), 14);
}

// A late reply is for who asked, and nobody else.
TEST_F(RedisFaultsTest, AReplyAfterTheTimeoutIsNeverTakenForAnothers) {
  const RedisServer server;
  FaultProxy proxy(server.port(), 1);
  {
    const auto writer = OpenUp(PatientOptions(server.Url()), metrics_);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(writer->Put(NumberedRecord(i), absl::ZeroDuration()).ok());
    }
  }
  RedisOptions options = PatientOptions(UrlOf(proxy.port()));
  options.operation_timeout = absl::Milliseconds(30);
  options.max_connections = 1;
  const auto store = OpenUp(options, metrics_);
  int found = 0;
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(store->WaitUntilUp(kLong));
    proxy.Hold(true);
    EXPECT_EQ(Find(*store, 0), nullptr);
    proxy.Hold(false);
    for (const int number : {1, 2}) {
      ASSERT_TRUE(store->WaitUntilUp(kLong));
      const RecordPtr record = Find(*store, number);
      if (record == nullptr) continue;  // the machine was slow
      ++found;
      EXPECT_TRUE(Same(record, NumberedRecord(number))) << "round " << round;
    }
  }
  EXPECT_GT(found, 0);
  EXPECT_EQ(Lookups(metrics_, "rejected"), 0);  // another's record would have been told by its key
}

TEST_F(RedisFaultsTest, AProxyThatDoesEverythingWrongNeverMakesARecordWrong) {
  constexpr int kThreads = 8;
  constexpr int kEach = 1250;
  constexpr int kKeys = 50;
  const RedisServer server;
  FaultProxy proxy(server.port(), 20);
  RedisOptions options = PatientOptions(UrlOf(proxy.port()));
  options.operation_timeout = absl::Milliseconds(300);  // a lost half of a reply ends so
  options.connect_timeout = absl::Milliseconds(300);
  options.max_backoff = absl::Milliseconds(4);
  std::vector<RecordPtr> records;
  for (int i = 0; i < kKeys; ++i) records.push_back(NumberedRecord(i, 8, 128));
  {
    const auto writer = OpenUp(PatientOptions(server.Url()), metrics_);
    for (const RecordPtr& record : records) {
      ASSERT_TRUE(writer->Put(record, absl::ZeroDuration()).ok());
    }
  }
  const auto store = OpenUp(options, metrics_);
  proxy.Set({.cut = 0.01, .truncate = 0.01, .flip = 0.03, .reorder = 0.002, .delay = 0.02});
  std::atomic<int> hits = 0;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(static_cast<uint32_t>(thread));
      for (int i = 0; i < kEach; ++i) {
        const int number = static_cast<int>(random() % kKeys);
        if (i % 8 == 0) store->WaitUntilUp(kLong);
        if (random() % 4 == 0) store->Put(records[number], absl::ZeroDuration()).IgnoreError();
        const RecordPtr record = Find(*store, number);
        hits += record != nullptr;
        wrong += record != nullptr && !Same(record, records[number]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::cout << hits << " of " << kThreads * kEach << " found, " << proxy.faults() << " faults\n";
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(hits, 100);
  EXPECT_GT(proxy.faults(), 100);
  EXPECT_GT(Lookups(metrics_, "error") + Lookups(metrics_, "rejected"), 100);
}

// Only the length comes: who waited for the value would wait for a minute.
TEST_F(RedisFaultsTest, AValueLongerThanTheRowsCanBeIsAMissByItsLengthLine) {
  const std::string longest = std::string(RecordCodec::MostBytes(4, 64), 'x');
  std::atomic<int> gets = 0;
  const FakeRedis redis([&](const Words& words) -> std::optional<std::string> {
    switch (gets++) {
      case 0:
        return "$134217728\r\n";
      case 1:
        return absl::StrCat("$", longest.size() + 1, "\r\n");
      case 2:
        return Bulk(longest);  // it is read, and then is no record
      default:
        return Bulk(good_);
    }
  });
  const auto store = OpenUp(PatientOptions(UrlOf(redis.port())), metrics_);
  store->ExpectRowWidth(64);
  for (int i = 0; i < 2; ++i) {
    const auto found = store->Get(NumberedKey(1), 4);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_FALSE(found->has_value());
    EXPECT_EQ(Lookups(metrics_, "error"), i + 1);
  }
  EXPECT_TRUE(store->up());
  EXPECT_FALSE((*store->Get(NumberedKey(1), 4)).has_value());
  EXPECT_EQ(Lookups(metrics_, "rejected"), 1);
  EXPECT_TRUE(Same(**store->Get(NumberedKey(1), 4), NumberedRecord(1)));
}

TEST_F(RedisFaultsTest, OneSlowReplyIsNobodyElses) {
  const FakeRedis redis([&](const Words& words) -> std::optional<std::string> {
    return words[1] == Key(1) ? Bulk(good_) : "";  // the others never
  });
  RedisOptions options = PatientOptions(UrlOf(redis.port()));
  options.operation_timeout = absl::Milliseconds(20);
  const auto store = OpenUp(options, metrics_);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Find(*store, 2), nullptr);
    EXPECT_TRUE(store->up()) << i;
    RecordPtr known;
    // On a slow machine a good answer may be late, too.
    while ((known = Find(*store, 1)) == nullptr) ASSERT_TRUE(store->WaitUntilUp(kLong));
    EXPECT_TRUE(Same(known, NumberedRecord(1)));
  }
}

TEST_F(RedisFaultsTest, AServerWhoseReadersAreRefusedForNowIsNotUp) {
  std::atomic<bool> loading = true;
  const FakeRedis redis(
      [&](const Words& words) -> std::optional<std::string> {
        if (loading) return "-LOADING Redis is loading the dataset in memory\r\n";
        return words[1] == Key(1) ? Bulk(good_) : "$-1\r\n";
      },
      /*hears_log_ins=*/true);
  ::testing::internal::CaptureStderr();
  {
    const auto store = *RedisStore::Create(PatientOptions(UrlOf(redis.port())), metrics_);
    EXPECT_FALSE(store->FirstState(kLong).ok());
    while (redis.connections() < 20) std::this_thread::yield();  // it tries, and tries
    EXPECT_FALSE(store->up());
    loading = false;
    ASSERT_TRUE(store->WaitUntilUp(kLong));
    EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1)));
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log, "\n"), 2) << log;
  EXPECT_EQ(CountOf(log, "GET: LOADING"), 1) << log;
}

TEST_F(RedisFaultsTest, AServerThatGoesToAndFroIsToldOfEverLessOften) {
  const FakeRedis redis([](const Words&) { return "-CLUSTERDOWN The cluster is down\r\n"; });
  ::testing::internal::CaptureStderr();
  {
    const auto store = OpenUp(PatientOptions(UrlOf(redis.port())), metrics_);
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(Find(*store, 1), nullptr);
      EXPECT_FALSE(store->up());
      ASSERT_TRUE(store->WaitUntilUp(kLong));
    }
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_GE(CountOf(log, " is down"), 1) << log;
  EXPECT_LE(CountOf(log, "\n"), 15) << log;  // of 200 changes; some more on a slow machine
}

absl::StatusOr<std::vector<SocketAddress>> Loopback(int port) {
  SocketAddress address;
  auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
  in.sin_family = AF_INET;
  in.sin_port = htons(static_cast<uint16_t>(port));
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.size = sizeof(in);
  return std::vector<SocketAddress>{address};
}

// The name moves to the new master; the old one, a replica now, still answers.
TEST_F(RedisFaultsTest, AMasterThatBecameAReplicaIsLeftForTheOneThatTheNameMeansNow) {
  const RedisServer before, after;
  std::atomic<int> named = before.port();
  RedisOptions options = PatientOptions(before.Url());
  options.resolve = [&named] { return Loopback(named); };
  const auto store = OpenUp(options, metrics_);
  ASSERT_TRUE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  before.Ask({"REPLICAOF", "127.0.0.1", absl::StrCat(after.port())});
  named = after.port();
  absl::Status put = absl::UnknownError("not tried");
  for (int i = 0; i < 6000 && !put.ok(); ++i) {
    put = store->Put(NumberedRecord(2), absl::ZeroDuration());
    if (!put.ok()) absl::SleepFor(absl::Milliseconds(10));
  }
  ASSERT_TRUE(put.ok()) << put;
  const auto witness = OpenUp(PatientOptions(after.Url()), metrics_);
  EXPECT_TRUE(Same(Find(*witness, 2), NumberedRecord(2)));
}

// Whatever a server answers, in whatever order: a record is right or a miss, and once the server
// answers well all is as it was.
TEST_F(RedisFaultsTest, AnyErrorsInAnyOrderAreMissesAndLeaveNothingBehind) {
  const std::string kErrors[] = {
      "-READONLY You can't write against a read only replica.\r\n",
      "-MASTERDOWN Link with MASTER is down\r\n",
      "-CLUSTERDOWN The cluster is down\r\n",
      "-LOADING Redis is loading\r\n",
      "-NOPERM no permissions\r\n",
      "-OOM command not allowed\r\n",
      "-MOVED 1 127.0.0.1:1\r\n",
      "-ERR something\r\n",
      "$134217728\r\n",
      "$99\r\nshort",
      "garbage\r\n",
      ":1\r\n",
      "",
  };
  std::mt19937 seeds(7);
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> sane = false;
    base::Mutex mutex;
    std::mt19937 random(seeds());
    const FakeRedis redis(
        [&](const Words& words) -> std::optional<std::string> {
          const std::string right = words[0] != "GET"    ? "+OK\r\n"
                                    : words[1] == Key(1) ? Bulk(good_)
                                                         : "$-1\r\n";
          if (sane) return right;
          base::MutexLock lock(mutex);
          const uint32_t kind = random() % (2 * std::size(kErrors));
          if (kind == std::size(kErrors)) return std::nullopt;
          return kind < std::size(kErrors) ? kErrors[kind] : right;
        },
        /*hears_log_ins=*/true);
    RedisOptions options = PatientOptions(UrlOf(redis.port()));
    options.operation_timeout = options.connect_timeout = absl::Milliseconds(20);
    const auto store = *RedisStore::Create(options, metrics_);
    store->ExpectRowWidth(64);
    for (int i = 0; i < 100; ++i) {
      if (i % 3 == 0) store->Put(NumberedRecord(1), absl::ZeroDuration()).IgnoreError();
      const auto found = store->Get(NumberedKey(1), 4);
      ASSERT_TRUE(found.ok()) << found.status();
      ASSERT_TRUE(!found->has_value() || Same(**found, NumberedRecord(1)));
      if (i % 10 == 0) store->WaitUntilUp(absl::Milliseconds(10));
    }
    sane = true;
    RecordPtr known;
    while ((known = Find(*store, 1)) == nullptr) ASSERT_TRUE(store->WaitUntilUp(kLong));
    EXPECT_TRUE(Same(known, NumberedRecord(1)));
    while (!store->Put(NumberedRecord(1), absl::ZeroDuration()).ok()) {
      ASSERT_TRUE(store->WaitUntilUp(kLong));
    }
  }
}

}  // namespace
}  // namespace tessera::store
