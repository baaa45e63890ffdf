#include "services/gateway/replica_set.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "services/gateway/routed_clients.h"
#include "tests/support/fake_clients.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

// Replicas that a test plays: their loads, their ends, their answers.
class ReplicaSetTest : public ::testing::Test {
 protected:
  struct Watch final : Call {
    Replica::OnLoad on_load;
    Replica::OnEnd on_end;
    void Cancel() override { End(); }
    void End() {
      if (on_end) std::exchange(on_end, nullptr)(absl::CancelledError(""));
    }
  };
  struct Peer {
    testing::FakeVisionClient* vision = nullptr;
    testing::FakeDecodeClient* decode = nullptr;
    std::vector<std::shared_ptr<Watch>> watches;
  };

  ~ReplicaSetTest() override {
    for (const ReplicaState& state : set_->States()) {  // others may be gone
      const Peer& peer = peers_[state.view.name];
      for (const auto& call : peer.decode->calls) call->End(absl::CancelledError("test over"));
      for (const auto& call : peer.vision->calls) call->Cancel();
    }
    set_ = nullptr;
  }

  void Start(std::vector<std::string> addresses) {
    ReplicaSetOptions options;
    options.service = "decode";
    options.addresses = std::move(addresses);
    set_ = std::make_unique<ReplicaSet>(
        options,
        ReplicaHooks{[this](const std::string& address) { return Resolve(address); },
                     [this](const std::string& name) { return Make(name); },
                     [this](const std::vector<ReplicaState>& states) { Hear(states); }},
        clock_);
    decode_ = MakeRoutedDecodeClient(*set_);
    vision_ = MakeRoutedVisionClient(*set_);
  }

  void Hear(const std::vector<ReplicaState>& states) {
    base::MutexLock lock(mutex_);
    heard_ = states;
  }
  int64_t FreeTokensHeard() {
    base::MutexLock lock(mutex_);
    int64_t tokens = 0;
    for (const ReplicaState& state : heard_) {
      if (state.view.up) tokens += state.load.free_tokens;
    }
    return tokens;
  }

  absl::StatusOr<std::vector<std::string>> Resolve(const std::string& address) {
    base::MutexLock lock(mutex_);
    const auto found = names_.find(address);
    if (found == names_.end()) return std::vector<std::string>{address};
    return found->second;
  }
  void SetNames(const std::string& address, absl::StatusOr<std::vector<std::string>> names) {
    base::MutexLock lock(mutex_);
    names_.insert_or_assign(address, std::move(names));
  }

  std::shared_ptr<Replica> Make(const std::string& name) {
    auto replica = std::make_shared<Replica>();
    replica->name = name;
    auto vision = std::make_unique<testing::FakeVisionClient>();
    auto decode = std::make_unique<testing::FakeDecodeClient>();
    base::MutexLock lock(mutex_);
    Peer& peer = peers_[name];
    peer.vision = vision.get();
    peer.decode = decode.get();
    replica->vision = std::move(vision);
    replica->decode = std::move(decode);
    replica->watch = [this, name](absl::Duration, Replica::OnLoad on_load, Replica::OnEnd on_end) {
      auto watch = std::make_shared<Watch>();
      watch->on_load = std::move(on_load);
      watch->on_end = std::move(on_end);
      base::MutexLock lock(mutex_);
      peers_[name].watches.push_back(watch);
      return watch;
    };
    return replica;
  }

  size_t Watches(const std::string& name) {
    base::MutexLock lock(mutex_);
    return peers_[name].watches.size();
  }
  void Tell(const std::string& name, ReplicaLoad load = {}) {
    std::shared_ptr<Watch> watch;
    {
      base::MutexLock lock(mutex_);
      watch = peers_[name].watches.back();
    }
    watch->on_load(load);
  }
  void EndWatch(const std::string& name) {
    std::shared_ptr<Watch> watch;
    {
      base::MutexLock lock(mutex_);
      watch = peers_[name].watches.back();
    }
    watch->End();
  }
  // Moves time on until it has come to that.
  void Await(const std::function<bool()>& done) {
    for (int i = 0; i < 60'000 && !done(); ++i) {
      clock_.Advance(absl::Milliseconds(10));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(done());
  }
  bool IsUp(const std::string& name) {
    for (const ReplicaState& state : set_->States()) {
      if (state.view.name == name) return state.view.up;
    }
    return false;
  }
  bool AnyUp() { return set_->Pick("").ok(); }

  // What an answer says to the gateway.
  struct Events final : DecodeEvents {
    std::vector<std::string> routes;
    std::string text;
    std::vector<uint32_t> needed;
    int ends = 0;
    absl::Status status;
    void OnRouted(const Routed& routed) override {
      routes.push_back(routed.replica + ": " + routed.reason);
    }
    void OnAccepted(const v1::Accepted&) override {}
    void OnNeedRows(const v1::NeedRows& need) override {
      needed.insert(needed.end(), need.images().begin(), need.images().end());
    }
    bool OnPiece(v1::TextPiece piece) override {
      text += piece.text();
      return true;
    }
    void OnDone(const absl::Status& end, const v1::DecodeEnd&) override {
      ++ends;
      status = end;
    }
  };
  std::shared_ptr<DecodeCall> Ask(const std::shared_ptr<Events>& events,
                                  const std::string& affinity = "a") {
    return decode_->Generate({}, {}, {.affinity = affinity}, events);
  }
  // Who has the answer that was asked last, and the other one.
  std::pair<std::string, std::string> Holder() {
    const bool first = !peers_["r0:1"].decode->calls.empty();
    return first ? std::make_pair("r0:1", "r1:1") : std::make_pair("r1:1", "r0:1");
  }
  testing::FakeDecodeClient::Stream& Stream(const std::string& name, size_t index = 0) {
    return *peers_[name].decode->calls.at(index);
  }

  testing::FakeClock clock_;
  base::Mutex mutex_;
  std::map<std::string, absl::StatusOr<std::vector<std::string>>> names_ ABSL_GUARDED_BY(mutex_);
  std::vector<ReplicaState> heard_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Peer> peers_;  // calls and watches by the thread of the test
  std::unique_ptr<ReplicaSet> set_;
  std::unique_ptr<DecodeClient> decode_;
  std::unique_ptr<VisionClient> vision_;
};

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
  EXPECT_TRUE(Stream("r0:1").cancelled);
  EXPECT_EQ(events->ends, 1);
  EXPECT_EQ(events->status.code(), absl::StatusCode::kUnavailable) << events->status;
  EXPECT_EQ(base::ReasonOf(events->status), "DECODE_LOST");
  EXPECT_TRUE(base::RetryOf(events->status).has_value());
  Tell("r0:1");
  EXPECT_TRUE(IsUp("r0:1"));
}

TEST_F(ReplicaSetTest, AReplicaWhoseWatchEndsIsDownAtOnceAndWatchedAgain) {
  Start({"r0:1"});
  Tell("r0:1");
  EndWatch("r0:1");
  EXPECT_FALSE(IsUp("r0:1"));
  Await([&] { return Watches("r0:1") == 2; });
  Tell("r0:1");
  EXPECT_TRUE(IsUp("r0:1"));
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

TEST_F(ReplicaSetTest, WhatIsLostBeforeItsFirstTokenIsTriedOnceElsewhere) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  const auto [holder, other] = Holder();
  Stream(holder).End(absl::UnavailableError("connection reset"));
  EXPECT_EQ(events->ends, 0);
  Stream(other).Piece("text");
  Stream(other).End(absl::OkStatus());
  EXPECT_EQ(events->text, "text");
  EXPECT_EQ(events->ends, 1);
  EXPECT_TRUE(events->status.ok()) << events->status;
  EXPECT_EQ(events->routes,
            (std::vector<std::string>{holder + ": affinity",
                                      other + ": first choice " + holder + " is lost"}));
}

TEST_F(ReplicaSetTest, NothingIsToldTwice) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  const auto [holder, other] = Holder();
  Stream(holder).Piece("half of ");
  Stream(holder).End(absl::UnavailableError("connection reset"));
  EXPECT_EQ(events->ends, 1);
  EXPECT_EQ(base::ReasonOf(events->status), "DECODE_LOST");
  EXPECT_TRUE(peers_[other].decode->calls.empty());
}

TEST_F(ReplicaSetTest, TheSecondLossIsTheEndAsIsAnErrorOfAnotherKind) {
  Start({"r0:1", "r1:1", "r2:1"});
  for (const char* name : {"r0:1", "r1:1", "r2:1"}) Tell(name);
  auto events = std::make_shared<Events>();
  Ask(events);
  int losses = 0;
  for (int round = 0; round < 3; ++round) {
    for (const char* name : {"r0:1", "r1:1", "r2:1"}) {
      for (const auto& call : peers_[name].decode->calls) {
        if (!call->events) continue;
        ++losses;
        call->End(absl::UnavailableError("gone"));
      }
    }
  }
  EXPECT_EQ(losses, 2);
  EXPECT_EQ(events->ends, 1);
  auto refused = std::make_shared<Events>();
  Ask(refused, "b");
  for (const char* name : {"r0:1", "r1:1", "r2:1"}) {
    for (const auto& call : peers_[name].decode->calls) {
      call->End(base::BadField("options.top_p", "BAD_PARAMETER", "no"));
    }
  }
  EXPECT_EQ(refused->ends, 1);
  EXPECT_EQ(base::ReasonOf(refused->status), "BAD_PARAMETER");
}

TEST_F(ReplicaSetTest, RowsAreAnnouncedToTheTryThatAskedForThem) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  auto events = std::make_shared<Events>();
  const std::shared_ptr<DecodeCall> call = Ask(events);
  const auto [holder, other] = Holder();
  Stream(holder).NeedRows(0);
  Stream(holder).NeedRows(1);
  call->RowsReady({0});
  EXPECT_EQ(Stream(holder).rows_ready, std::vector<uint32_t>{0});
  Stream(holder).End(absl::UnavailableError("gone"));
  call->RowsReady({1});  // the second try has not asked
  EXPECT_TRUE(Stream(other).rows_ready.empty());
  Stream(other).NeedRows(1);
  call->RowsReady({1});
  EXPECT_EQ(Stream(other).rows_ready, std::vector<uint32_t>{1});
}

TEST_F(ReplicaSetTest, ACancelledAnswerIsNotTriedAgain) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  auto events = std::make_shared<Events>();
  const std::shared_ptr<DecodeCall> call = Ask(events);
  call->Cancel();
  EXPECT_EQ(events->ends, 1);
  EXPECT_TRUE(absl::IsCancelled(events->status));
  EXPECT_EQ(peers_["r0:1"].decode->calls.size() + peers_["r1:1"].decode->calls.size(), 1u);
}

TEST_F(ReplicaSetTest, APictureIsEncodedElsewhereWhenItsReplicaIsLost) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  absl::StatusOr<EncodedImage> got = absl::UnknownError("");
  Picture picture;
  picture.digest = base::Sha256Of("p");
  vision_->Encode(picture, {}, [&](absl::StatusOr<EncodedImage> image) { got = std::move(image); });
  const bool first = !peers_["r0:1"].vision->calls.empty();
  const std::string holder = first ? "r0:1" : "r1:1", other = first ? "r1:1" : "r0:1";
  peers_[holder].vision->calls.at(0)->Fail(absl::UnavailableError("reset"));
  peers_[other].vision->calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->replica, other);
  EXPECT_EQ(got->replica_reason, "first choice " + holder + " is lost");
}

}  // namespace
}  // namespace tessera::gateway
