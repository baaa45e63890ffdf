#include "services/gateway/fleet/replica_set.h"

#include <future>

#include "tests/services/gateway/fleet/replica_set_fixture.h"

namespace tessera::gateway {
namespace {

TEST_F(ReplicaSetTest, AReplicaIsUpOnceItWasHeardOf) {
  Start({"r0:1"});
  EXPECT_EQ(base::ReasonOf(set_->Pick("").status()), "DECODE_DOWN");
  EXPECT_TRUE(base::RetryOf(set_->Pick("").status()).has_value());
  Tell("r0:1");
  EXPECT_EQ(set_->Pick("")->replica->name, "r0:1");
  EXPECT_EQ(set_->Pick("")->reason, "only replica");
}

TEST_F(ReplicaSetTest, SilenceTakesAReplicaOutAndItsWordBringsItBack) {
  Start({"r0:1"});
  Tell("r0:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  Stream("r0:1").Piece("told ");
  Await([&] { return !IsUp("r0:1"); });
  Await([&] { return Watches("r0:1") == 2; });  // it is asked anew
  EXPECT_FALSE(Stream("r0:1").cancelled) << "nobody else can go on with what has begun";
  Await([&] { return events->ends == 1; });
  EXPECT_TRUE(Stream("r0:1").cancelled);
  EXPECT_EQ(events->status.code(), absl::StatusCode::kUnavailable) << events->status;
  EXPECT_EQ(base::ReasonOf(events->status), "DECODE_LOST");
  EXPECT_TRUE(base::RetryOf(events->status).has_value());
  Tell("r0:1");
  EXPECT_TRUE(IsUp("r0:1"));
}

TEST_F(ReplicaSetTest, AnAnswerThatHasBegunOutlivesAPauseOfItsReplica) {
  Start({"r0:1"});
  Tell("r0:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  Stream("r0:1").Piece("one ");
  Await([&] { return !IsUp("r0:1"); });
  Await([&] { return Watches("r0:1") == 2; });
  clock_.Advance(absl::Seconds(1));
  Tell("r0:1");  // it was stopped, and goes on
  Stream("r0:1").Piece("two");
  EXPECT_TRUE(IsUp("r0:1"));
  Stream("r0:1").End(absl::OkStatus());
  EXPECT_EQ(events->text, "one two");
  EXPECT_TRUE(events->status.ok()) << events->status;
}

TEST_F(ReplicaSetTest, WhatAnAnswerSaysIsHeardOfItsReplica) {
  Start({"r0:1"});
  Tell("r0:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  for (int i = 0; i < 50; ++i) {
    Stream("r0:1").Piece("x");
    const absl::Time next = clock_.Now() + absl::Milliseconds(400);
    Await([&] { return clock_.Now() >= next; });
    ASSERT_TRUE(IsUp("r0:1")) << i;
  }
  EXPECT_EQ(Watches("r0:1"), 1u);
  Await([&] { return !IsUp("r0:1"); });
}

TEST_F(ReplicaSetTest, AnAnswerWhoseReaderIsSlowIsNotSilent) {
  Start({"r0:1"});
  Tell("r0:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  Stream("r0:1").Piece("x");
  Stream("r0:1").heard->paused = true;
  Await([&] { return !IsUp("r0:1"); });
  const absl::Time later = clock_.Now() + absl::Seconds(10);
  Await([&] { return clock_.Now() >= later; });
  EXPECT_FALSE(Stream("r0:1").cancelled);
  Stream("r0:1").heard->paused = false;
  Await([&] { return events->ends == 1; });
  EXPECT_TRUE(Stream("r0:1").cancelled);
}

// Nobody was silent: this process was stopped.
TEST_F(ReplicaSetTest, WhoHasNotListenedGivesTheReplicasTimeToBeHeard) {
  Start({"r0:1"});
  Tell("r0:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  clock_.Advance(absl::Minutes(1));
  const absl::Time woken = clock_.Now();
  Await([&] { return !IsUp("r0:1"); });  // it is silent indeed
  EXPECT_GE(clock_.Now() - woken, ReplicaSetOptions().load_interval);
  Await([&] { return Watches("r0:1") == 2; });  // by then its calls are cancelled
  EXPECT_TRUE(Stream("r0:1").cancelled);
}

TEST_F(ReplicaSetTest, AReplicaWhoseWatchEndsIsDownAtOnceAndWatchedAgain) {
  Start({"r0:1"});
  Tell("r0:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  EndWatch("r0:1");
  EXPECT_FALSE(IsUp("r0:1"));
  EXPECT_FALSE(Stream("r0:1").cancelled);  // gRPC ends what has to end
  Await([&] { return Watches("r0:1") == 2; });
  Tell("r0:1");
  EXPECT_TRUE(IsUp("r0:1"));
}

TEST_F(ReplicaSetTest, AWatchThatEndsWellIsTakenUpAnewAndNobodyNotices) {
  Start({"r0:1"});
  Tell("r0:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  EndWatch("r0:1", absl::OkStatus());
  EXPECT_TRUE(IsUp("r0:1"));
  EXPECT_FALSE(Stream("r0:1").cancelled);
  Await([&] { return Watches("r0:1") == 2; });
  Tell("r0:1", {.draining = true});
  EXPECT_FALSE(AnyUp());
  Await([&] { return !IsUp("r0:1"); });  // silence is told from the new one, too
  Await([&] { return Watches("r0:1") == 3; });
  EXPECT_TRUE(Stream("r0:1").cancelled);
}

TEST_F(ReplicaSetTest, DrainingAndFullReplicasGetNothingNew) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1", {.draining = true});
  Tell("r1:1");
  EXPECT_EQ(set_->Pick("a")->replica->name, "r1:1");
  Tell("r1:1", {.full = true});
  EXPECT_EQ(base::ReasonOf(set_->Pick("a").status()), "QUEUE_FULL");
  Tell("r1:1");
  EXPECT_EQ(set_->Pick("a")->replica->name, "r1:1");
}

TEST_F(ReplicaSetTest, WhatBelongsNowhereIsSpreadBetweenTwoWordsOfTheReplicas) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  const auto picks = [&] {
    std::map<std::string, int> count;
    for (int i = 0; i < 10; ++i) ++count[set_->Pick("")->replica->name];
    return count;
  };
  EXPECT_EQ(picks(), (std::map<std::string, int>{{"r0:1", 5}, {"r1:1", 5}}));
  Tell("r0:1", {.pressure = 0.5});  // has its five in it
  EXPECT_EQ(picks(), (std::map<std::string, int>{{"r1:1", 10}}));
}

TEST_F(ReplicaSetTest, ABrokenReplicaGetsNothingThoughNobodyHasMoreRoom) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1", {.broken = true});
  Tell("r1:1", {.pressure = 0.9});
  for (const char* affinity : {"", "a", "b", "c", "d"}) {
    EXPECT_EQ(set_->Pick(affinity)->replica->name, "r1:1");
  }
  Tell("r1:1", {.broken = true});
  EXPECT_EQ(base::ReasonOf(set_->Pick("a").status()), "DECODE_DOWN");
}

TEST_F(ReplicaSetTest, WhatASilentReplicaStillSaysInItsOldWatchCountsNoMore) {
  Start({"r0:1"});
  Tell("r0:1");
  const std::shared_ptr<Watch> old = peers_["r0:1"].watches.back();
  const auto end = std::exchange(old->on_end, nullptr);  // its end is long in coming
  Await([&] { return !IsUp("r0:1"); });
  old->on_load({});
  EXPECT_FALSE(IsUp("r0:1"));
  Await([&] { return Watches("r0:1") == 2; });
  Tell("r0:1");
  end(absl::CancelledError(""));
  EXPECT_TRUE(IsUp("r0:1"));
}

TEST_F(ReplicaSetTest, RequestsThatEndedBeforeAReplicaWasHeardOfAreNotCounted) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1", {.requests_ended = 1000});
  Tell("r1:1", {.requests_ended = 0});
  EXPECT_EQ(EndedHeard(), 0u);
  Tell("r0:1", {.requests_ended = 1003});
  EXPECT_EQ(EndedHeard(), 3u);
  Tell("r0:1", {.requests_ended = 2});  // another process
  EXPECT_EQ(EndedHeard(), 5u);
}

TEST_F(ReplicaSetTest, WhoeverCountsTheRoomHearsOfEveryChange) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1", {.free_tokens = 100});
  Tell("r1:1", {.free_tokens = 20});
  EXPECT_EQ(FreeTokensHeard(), 120);
  Tell("r1:1", {.free_tokens = 30});
  EXPECT_EQ(FreeTokensHeard(), 130);
  EndWatch("r0:1");
  EXPECT_EQ(FreeTokensHeard(), 30);
  Await([&] { return FreeTokensHeard() == 0; });  // r1 is silent
}

TEST_F(ReplicaSetTest, AWaitIsWhatIsQueuedByTheRateAtWhichItDrains) {
  Start({"r0:1", "r1:1"});
  for (uint64_t i = 0; i <= 10; ++i) {  // 4 a second
    Tell("r0:1", {.waiting = 8, .requests_ended = i});
    Tell("r1:1", {.waiting = 2, .requests_ended = i});
    clock_.Advance(absl::Milliseconds(250));
  }
  std::set<std::pair<absl::Duration, absl::Duration>> waits;
  for (const char* affinity : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    const DecodeWaits wait = decode_->Waits(affinity);
    waits.emplace(wait.first, wait.least);
    const bool busy = wait.first == absl::Seconds(2);
    EXPECT_EQ(set_->Pick(affinity, {}, absl::Seconds(1))->redirected, busy);
    EXPECT_FALSE(set_->Pick(affinity)->redirected);
  }
  EXPECT_EQ(waits, (std::set<std::pair<absl::Duration, absl::Duration>>{
                       {absl::Seconds(2), absl::Milliseconds(500)},
                       {absl::Milliseconds(500), absl::Milliseconds(500)}}));
}

TEST_F(ReplicaSetTest, AddressesComeAndGoAndAFailureToResolveChangesNothing) {
  SetNames("decode:1", std::vector<std::string>{"r0:1", "r1:1"});
  Start({"decode:1"});
  Tell("r0:1");
  Tell("r1:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  const auto [holder, other] = Holder();
  SetNames("decode:1", std::vector<std::string>{other, "r2:1"});
  Await([&, holder = holder, other = other] {
    if (IsUp(holder)) Tell(holder);
    Tell(other);
    return set_->States().size() == 2 && Watches("r2:1") > 0;
  });
  EXPECT_FALSE(Stream(holder).cancelled);  // it finishes what it has
  Stream(holder).End(absl::OkStatus());
  EXPECT_TRUE(events->status.ok());
  SetNames("decode:1", absl::UnavailableError("no resolver"));
  for (int i = 0; i < 1000; ++i) {
    clock_.Advance(absl::Milliseconds(10));
    Tell(other);
  }
  EXPECT_EQ(set_->States().size(), 2u);
}

TEST_F(ReplicaSetTest, AReplicaThatIsNoneAnyMoreGoesWhenItsLastLeaseIsReturned) {
  SetNames("decode:1", std::vector<std::string>{"r0:1"});
  Start({"decode:1"});
  Tell("r0:1");
  ReplicaLease lease = set_->Pick("")->replica;
  ReplicaLease other = lease;
  SetNames("decode:1", std::vector<std::string>{"r1:1"});
  Await([&] { return Watches("r1:1") > 0; });
  EXPECT_TRUE(Lives("r0:1"));
  lease = nullptr;
  EXPECT_TRUE(Lives("r0:1")) << "another uses it";
  other = nullptr;
  AwaitDeath("r0:1");  // though no time passes: the lease wakes the set
}

TEST_F(ReplicaSetTest, TheEndOfASetWaitsForTheLastLease) {
  Start({"r0:1"});
  Tell("r0:1");
  ReplicaLease lease = set_->Pick("")->replica;
  std::promise<void> ended;
  std::thread end([&] {
    set_ = nullptr;
    ended.set_value();
  });
  auto future = ended.get_future();
  EXPECT_EQ(future.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_TRUE(Lives("r0:1"));
  lease = nullptr;
  future.get();
  end.join();
  EXPECT_FALSE(Lives("r0:1"));
}

TEST_F(ReplicaSetTest, WhoAwaitsAChangeIsWokenByIt) {
  Start({"r0:1"});
  const uint64_t seen = set_->changes();
  std::promise<uint64_t> woken;
  std::thread waiter([&] { woken.set_value(set_->AwaitChange(seen, absl::Hours(1))); });
  Tell("r0:1");
  EXPECT_GT(woken.get_future().get(), seen);
  waiter.join();
  EXPECT_GT(set_->AwaitChange(seen, absl::Hours(1)), seen) << "it was before";
  EXPECT_EQ(set_->AwaitChange(set_->changes(), absl::ZeroDuration()), set_->changes());
}

}  // namespace
}  // namespace tessera::gateway
