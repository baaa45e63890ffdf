#include "common/store/redis/redis_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "tests/common/store/redis/redis_fixture.h"
#include "tests/support/redis_server.h"

namespace tessera::store {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::RedisServer;

std::unique_ptr<RedisStore> Open(RedisOptions options, metrics::Metrics& metrics) {
  auto store = RedisStore::Create(std::move(options), metrics);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

class RedisStoreTest : public ::testing::Test {
 protected:
  metrics::Metrics metrics_{"m"};
};

TEST_F(RedisStoreTest, GivesBackWhatWasPutToEveryReaderUntilItsTimeHasCome) {
  const RedisServer server;
  RedisOptions options = PatientOptions(server.Url());
  options.ttl = absl::Hours(2);
  const auto store = OpenUp(options, metrics_);
  EXPECT_EQ(Find(*store, 1), nullptr);
  ASSERT_TRUE(store->Put(NumberedRecord(1), absl::Seconds(1)).ok());
  EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1)));
  const int ttl = std::stoi(server.Ask({"TTL", Key(1)}));
  EXPECT_LE(ttl, 7200);
  EXPECT_GT(ttl, 7000);
  metrics::Metrics others{"m"};
  EXPECT_TRUE(Same(Find(*OpenUp(options, others), 1), NumberedRecord(1)));
  EXPECT_EQ(Lookups(metrics_, "hit"), 1);
  EXPECT_EQ(Lookups(metrics_, "miss"), 1);
  EXPECT_EQ(Lookups(metrics_, "error"), 0);
  EXPECT_EQ(Lookups(metrics_, "rejected"), 0);
  EXPECT_EQ(UpGauge(metrics_), 1);
  const std::string bytes = *RecordCodec().Encode(*NumberedRecord(1));
  for (const char* direction : {"read", "write"}) {
    EXPECT_EQ(
        Series(metrics_, absl::StrCat("tessera_embedding_cache_transferred_bytes_total{model_name="
                                      "\"m\",direction=\"",
                                      direction, "\"}")),
        bytes.size());
  }
  EXPECT_EQ(Series(metrics_,
                   "tessera_embedding_cache_operation_duration_seconds_count{"
                   "model_name=\"m\",operation=\"get\",tier=\"store\"}"),
            2);
}

TEST_F(RedisStoreTest, AllSeriesStandAtZeroFromTheStart) {
  const auto store = Open(PatientOptions("redis://127.0.0.1:1"), metrics_);
  for (const char* result : {"hit", "miss", "error", "rejected"}) {
    EXPECT_EQ(Lookups(metrics_, result), 0) << result;
  }
  for (const char* reason : {"refused", "unavailable", "too_large"}) {
    EXPECT_EQ(FailedWrites(metrics_, reason), 0) << reason;
  }
  EXPECT_EQ(UpGauge(metrics_), 0);
}

TEST_F(RedisStoreTest, LargeRecordsPassWhole) {
  const RedisServer server;
  const auto store = OpenUp(PatientOptions(server.Url()), metrics_);
  const RecordPtr record = LargeRecord(1, 512);
  ASSERT_TRUE(store->Put(record, absl::ZeroDuration()).ok());
  EXPECT_TRUE(Same(Find(*store, 1), record));
}

TEST_F(RedisStoreTest, ARecordBeyondTheLimitIsNeitherWrittenNorRead) {
  const RedisServer server;
  RedisOptions options = PatientOptions(server.Url());
  const auto writer = OpenUp(options, metrics_);
  ASSERT_TRUE(writer->Put(NumberedRecord(1, 100, 64), absl::ZeroDuration()).ok());
  options.max_value_bytes = 10'000;
  metrics::Metrics metrics{"m"};
  const auto store = OpenUp(options, metrics);
  EXPECT_EQ(Find(*store, 1), nullptr);
  EXPECT_EQ(Lookups(metrics, "error"), 1);
  const absl::Status status = store->Put(NumberedRecord(2, 100, 64), absl::ZeroDuration());
  EXPECT_EQ(base::ReasonOf(status), "RECORD_TOO_LARGE");
  EXPECT_EQ(FailedWrites(metrics, "too_large"), 1);
  ASSERT_TRUE(store->Put(NumberedRecord(3), absl::ZeroDuration()).ok());
  EXPECT_TRUE(Same(Find(*store, 3), NumberedRecord(3)));
}

// FAULTS B080, the first half: user, password and database of the URL.
TEST_F(RedisStoreTest, LogsInAndSelectsAgainOnEveryConnection) {
  const RedisServer server({"--requirepass", "p@ss word/1", "--user", "cache", "on", ">s:cret",
                            "~tessera:*", "+@read", "+@write", "+select", "+ping"});
  for (const char* user : {":p%40ss%20word%2F1@", "cache:s%3Acret@"}) {
    const auto store = OpenUp(PatientOptions(server.Url(user) + "/3"), metrics_);
    ASSERT_TRUE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
    EXPECT_EQ(server.Ask({"EXISTS", Key(1)}, "p@ss word/1", 3), "1");
    EXPECT_EQ(server.Ask({"EXISTS", Key(1)}, "p@ss word/1", 0), "0");
    for (int round = 0; round < 3; ++round) {
      server.Ask({"CLIENT", "KILL", "TYPE", "normal"}, "p@ss word/1");
      EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1))) << user << " round " << round;
    }
  }
}

TEST_F(RedisStoreTest, ARecordOfAnotherWidthIsLeftAloneAndTheNextWriteReplacesIt) {
  const RedisServer server;
  const auto store = OpenUp(PatientOptions(server.Url()), metrics_);
  ASSERT_TRUE(store->Put(NumberedRecord(1, 4, 32), absl::ZeroDuration()).ok());
  ASSERT_NE(Find(*store, 1), nullptr);
  store->ExpectRowWidth(64);
  EXPECT_EQ(Find(*store, 1), nullptr);
  EXPECT_EQ(Lookups(metrics_, "rejected"), 1);
  EXPECT_EQ(server.Ask({"EXISTS", Key(1)}), "1");
  ASSERT_TRUE(store->Put(NumberedRecord(1, 4, 64), absl::ZeroDuration()).ok());
  EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1, 4, 64)));
}

TEST_F(RedisStoreTest, AWrongPasswordIsOneLineWithoutItAndAMissAtOnce) {
  const RedisServer server({"--requirepass", "right"});
  ::testing::internal::CaptureStderr();
  {
    const auto store = Open(PatientOptions(server.Url(":wrongful@")), metrics_);
    const auto without = Open(PatientOptions(server.Url()), metrics_);
    EXPECT_FALSE(store->FirstState(kLong).ok());
    EXPECT_FALSE(without->FirstState(kLong).ok());
    EXPECT_EQ(Find(*store, 1), nullptr);
    EXPECT_EQ(base::ReasonOf(store->Put(NumberedRecord(1), absl::ZeroDuration())), "REDIS_DOWN");
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log, " is down"), 2) << log;
  EXPECT_THAT(log, HasSubstr("WRONGPASS"));
  EXPECT_THAT(log, HasSubstr("NOAUTH"));
  EXPECT_THAT(log, Not(HasSubstr("wrongful")));
}

TEST_F(RedisStoreTest, ADatabaseThatIsNotThereIsNeverReplacedByAnother) {
  const RedisServer server({"--databases", "2"});
  const auto store = Open(PatientOptions(server.Url() + "/5"), metrics_);
  EXPECT_FALSE(store->FirstState(kLong).ok());
  EXPECT_FALSE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  EXPECT_EQ(server.Ask({"DBSIZE"}), "0");
}

// FAULTS B078.
TEST_F(RedisStoreTest, ARedisThatComesLaterIsFoundAndBeforeAllIsAMiss) {
  RedisServer server;
  server.Kill();
  ::testing::internal::CaptureStderr();
  {
    const auto store = Open(PatientOptions(server.Url()), metrics_);
    EXPECT_EQ(Find(*store, 1), nullptr);
    EXPECT_FALSE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
    EXPECT_EQ(UpGauge(metrics_), 0);
    EXPECT_EQ(Lookups(metrics_, "error"), 1);
    EXPECT_EQ(FailedWrites(metrics_, "unavailable"), 1);
    EXPECT_FALSE(store->FirstState(kLong).ok());
    EXPECT_FALSE(store->WaitUntilUp(absl::Milliseconds(100)));
    server.Start();
    ASSERT_TRUE(store->WaitUntilUp(kLong));
    EXPECT_EQ(UpGauge(metrics_), 1);
    ASSERT_TRUE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
    EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1)));
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log, " is down"), 1) << log;
  EXPECT_EQ(CountOf(log, " is up"), 1) << log;
}

TEST_F(RedisStoreTest, ANameThatNobodyKnowsKeepsNoRequestAndNoShutdownWaiting) {
  const auto store = Open(PatientOptions("redis://no-such-host.invalid"), metrics_);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Find(*store, i), nullptr);
  EXPECT_EQ(Lookups(metrics_, "error"), 100);
}

TEST_F(RedisStoreTest, ANameIsResolved) {
  const RedisServer server;
  RedisOptions options = PatientOptions(server.Url());
  options.address.host = "localhost";
  const auto store = OpenUp(options, metrics_);
  EXPECT_TRUE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
}

TEST_F(RedisStoreTest, ALossIsSeenWithoutTraffic) {
  RedisServer server;
  RedisOptions options = PatientOptions(server.Url());
  options.ping_interval = absl::Milliseconds(1);
  const auto store = OpenUp(options, metrics_);
  server.Kill();
  const absl::Time deadline = base::RealClock().Now() + kLong;
  while (UpGauge(metrics_) != 0 && base::RealClock().Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(UpGauge(metrics_), 0);
}

TEST_F(RedisStoreTest, AStoppedRedisIsAMissWithinTheTimeAndThenAtOnce) {
  RedisServer server;
  RedisOptions options = PatientOptions(server.Url());
  options.operation_timeout = absl::Milliseconds(50);
  options.connect_timeout = absl::Milliseconds(50);
  ::testing::internal::CaptureStderr();
  {
    const auto store = OpenUp(options, metrics_);
    server.Pause();
    for (int i = 0; i < options.timeouts_until_lost; ++i) {
      EXPECT_TRUE(store->up());
      EXPECT_EQ(Find(*store, 1), nullptr);  // a hang ends the test by its own time limit
    }
    EXPECT_FALSE(store->up());
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(Find(*store, i), nullptr);
    EXPECT_EQ(Lookups(metrics_, "error"), 1000 + options.timeouts_until_lost);
    // The first was asked, two found no new connection; Redis was left alone then.
    EXPECT_EQ(Series(metrics_,
                     "tessera_embedding_cache_operation_duration_seconds_count{"
                     "model_name=\"m\",operation=\"get\",tier=\"store\"}"),
              1);
    server.Resume();
    ASSERT_TRUE(store->WaitUntilUp(kLong));
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_GE(CountOf(log, "no answer in time"), 1) << log;
}

// FAULTS B081.
TEST_F(RedisStoreTest, AFullRedisRefusesWritesAndStaysOfUse) {
  const RedisServer server({"--maxmemory", "20mb", "--maxmemory-policy", "noeviction"});
  const auto store = OpenUp(PatientOptions(server.Url()), metrics_);
  ::testing::internal::CaptureStderr();
  int refused = 0;
  for (int i = 0; i < 50; ++i) {  // 1 MiB each
    const absl::Status status = store->Put(LargeRecord(i, 128), absl::ZeroDuration());
    if (status.ok()) continue;
    EXPECT_EQ(base::ReasonOf(status), "REDIS_REFUSED") << status;
    ++refused;
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_GT(refused, 20);
  EXPECT_EQ(FailedWrites(metrics_, "refused"), refused);
  EXPECT_EQ(CountOf(log, "OOM"), 1) << log;
  EXPECT_TRUE(store->up());
  EXPECT_TRUE(Same(Find(*store, 0), LargeRecord(0, 128)));
}

TEST_F(RedisStoreTest, AValueLargerThanTheWholeRedisIsRefusedAndTheOthersAreNot) {
  const RedisServer server({"--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"});
  const auto store = OpenUp(PatientOptions(server.Url()), metrics_);
  EXPECT_FALSE(store->Put(LargeRecord(1000, 4096), absl::ZeroDuration()).ok());
  for (int i = 0; i < 50; ++i) {
    // Right behind the large one memory may still be moving: refused, or taken.
    store->Put(LargeRecord(i, 128), absl::ZeroDuration()).IgnoreError();
  }
  EXPECT_TRUE(store->up());
  absl::Status put = absl::UnknownError("not tried");  // until the memory of the large one is free
  for (int i = 0; i < 6000 && !put.ok(); ++i) {
    put = store->Put(LargeRecord(50, 128), absl::ZeroDuration());
    if (!put.ok()) absl::SleepFor(absl::Milliseconds(10));
  }
  ASSERT_TRUE(put.ok()) << put;
  EXPECT_TRUE(Same(Find(*store, 50), LargeRecord(50, 128)));
}

TEST_F(RedisStoreTest, AReplicaThatMayNotBeWrittenIsStillRead) {
  const RedisServer server;
  const auto store = OpenUp(PatientOptions(server.Url()), metrics_);
  ASSERT_TRUE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  // Of a master that is not there; what it has is still served.
  server.Ask({"REPLICAOF", "127.0.0.1", "1"});
  EXPECT_EQ(base::ReasonOf(store->Put(NumberedRecord(2), absl::ZeroDuration())), "REDIS_REFUSED");
  EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1)));
}

TEST_F(RedisStoreTest, AWrongTypeOfValueIsAMissThatTheNextPutRepairs) {
  const RedisServer server;
  const auto store = OpenUp(PatientOptions(server.Url()), metrics_);
  server.Ask({"LPUSH", Key(1), "x"});
  EXPECT_EQ(Find(*store, 1), nullptr);
  EXPECT_EQ(Lookups(metrics_, "rejected"), 1);
  EXPECT_TRUE(store->up());
  ASSERT_TRUE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1)));
}

TEST_F(RedisStoreTest, BrokenRecordsAreDeletedAndThoseOfOthersLeftAlone) {
  const RedisServer server;
  const auto store = OpenUp(PatientOptions(server.Url()), metrics_);
  const std::string good = *RecordCodec().Encode(*NumberedRecord(1));
  std::string flipped = good;
  flipped[good.size() - 30] ^= 1;
  const auto kept_after = [&](const std::string& bytes) {
    server.Ask({"SET", Key(1), bytes});
    EXPECT_EQ(Find(*store, 1), nullptr);
    return server.Ask({"EXISTS", Key(1)}) == "1";
  };
  EXPECT_FALSE(kept_after(flipped));
  EXPECT_FALSE(kept_after(good.substr(0, good.size() - 1)));
  EXPECT_FALSE(kept_after(""));
  EXPECT_FALSE(kept_after("TSR1"));
  EXPECT_TRUE(kept_after(*RecordCodec::WithKey(std::string(32, 'k'))->Encode(*NumberedRecord(1))));
  // FAULTS B036: whatever the name it lies under, the record says whose it is.
  EXPECT_TRUE(kept_after(*RecordCodec().Encode(*NumberedRecord(2))));
  EXPECT_EQ(Lookups(metrics_, "rejected"), 6);
  EXPECT_EQ(Series(metrics_,
                   "tessera_embedding_cache_operation_duration_seconds_count{"
                   "model_name=\"m\",operation=\"delete\",tier=\"store\"}"),
            4);
}

TEST_F(RedisStoreTest, WithAKeyAPlantedRecordIsNeverUsed) {
  const RedisServer server;
  RedisOptions options = PatientOptions(server.Url());
  options.codec = *RecordCodec::WithKey(std::string(32, 'k'));
  const auto store = OpenUp(options, metrics_);
  ASSERT_TRUE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1)));
  const std::string sealed = server.Ask({"GET", Key(1)});
  const std::string xxh3 = *RecordCodec().Encode(*NumberedRecord(1));
  std::string forged = sealed;  // all but the tag is right
  forged.back() ^= 1;
  for (const std::string& planted :
       {xxh3, *RecordCodec::WithKey(std::string(32, 'x'))->Encode(*NumberedRecord(1)), forged}) {
    server.Ask({"SET", Key(1), planted});
    EXPECT_EQ(Find(*store, 1), nullptr);
    EXPECT_EQ(server.Ask({"EXISTS", Key(1)}), "1");
  }
  EXPECT_EQ(Lookups(metrics_, "rejected"), 3);
  ASSERT_TRUE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  EXPECT_TRUE(Same(Find(*store, 1), NumberedRecord(1)));
}

TEST_F(RedisStoreTest, MoreThreadsThanConnectionsWaitForOne) {
  const RedisServer server;
  RedisOptions options = PatientOptions(server.Url());
  options.max_connections = 2;
  const auto store = OpenUp(options, metrics_);
  ASSERT_TRUE(store->Put(NumberedRecord(1), absl::ZeroDuration()).ok());
  std::atomic<int> found = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 16; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) found += Same(Find(*store, 1), NumberedRecord(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, 800);
  // Ours, and the one that asks.
  EXPECT_LE(CountOf(server.Ask({"CLIENT", "LIST"}), "cmd=get"), 2);
}

TEST_F(RedisStoreTest, OptionsAreChecked) {
  const auto reason = [this](void (*change)(RedisOptions&)) {
    RedisOptions options = PatientOptions("redis://127.0.0.1:1");
    change(options);
    return base::ReasonOf(RedisStore::Create(options, metrics_).status());
  };
  EXPECT_EQ(reason([](RedisOptions& o) { o.connect_timeout = absl::ZeroDuration(); }),
            "BAD_OPTION");
  EXPECT_EQ(reason([](RedisOptions& o) { o.operation_timeout = -absl::Seconds(1); }), "BAD_OPTION");
  EXPECT_EQ(reason([](RedisOptions& o) { o.max_backoff = absl::Microseconds(1); }), "BAD_OPTION");
  EXPECT_EQ(reason([](RedisOptions& o) { o.ttl = absl::Milliseconds(999); }), "BAD_OPTION");
  EXPECT_EQ(reason([](RedisOptions& o) { o.ttl = absl::InfiniteDuration(); }), "BAD_OPTION");
  EXPECT_EQ(reason([](RedisOptions& o) { o.max_connections = 0; }), "BAD_OPTION");
}

}  // namespace
}  // namespace tessera::store
