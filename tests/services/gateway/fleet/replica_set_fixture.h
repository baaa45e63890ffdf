#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "services/gateway/fleet/replica_set.h"
#include "services/gateway/fleet/routed_clients.h"
#include "tests/support/fake_clients.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {

// Replicas that a test plays: their loads, their ends, their answers.
class ReplicaSetTest : public ::testing::Test {
 protected:
  struct Watch final : Call {
    Replica::OnLoad on_load;
    Replica::OnEnd on_end;
    bool started = false, cancelled = false;
    void Start() override {
      CHECK(!std::exchange(started, true));
      if (cancelled) Cancel();
    }
    void Cancel() override {
      cancelled = true;
      if (started) End(absl::CancelledError(""));
    }
    void End(const absl::Status& status) {
      if (on_end) std::exchange(on_end, nullptr)(status);
    }
  };
  struct Peer {
    testing::FakeVisionClient* vision = nullptr;
    testing::FakeDecodePeer* decode = nullptr;
    std::vector<std::shared_ptr<Watch>> watches;
    std::weak_ptr<const void> life;  // of the replica made last
  };

  ~ReplicaSetTest() override {
    if (set_ == nullptr) return;
    for (const ReplicaState& state : set_->States()) {  // others may be gone
      const Peer& peer = peers_[state.view.name];
      for (const auto& call : peer.decode->calls) call->End(absl::CancelledError("test over"));
      for (const auto& call : peer.vision->calls) call->Cancel();
    }
    set_ = nullptr;
  }

  void Start(const std::vector<std::string>& addresses) {
    ReplicaSetOptions options;
    options.service = "decode";
    options.addresses = addresses;
    set_ = std::make_unique<ReplicaSet>(
        options,
        ReplicaHooks{[names = names_](const std::string& address) { return names->Of(address); },
                     [this](const std::string& name) { return Make(name); },
                     [this](const std::vector<ReplicaState>& states, uint64_t) { Hear(states); }},
        clock_);
    AwaitAll(addresses);
    decode_ = MakeRoutedDecodeClient(*set_);
    vision_ = MakeRoutedVisionClient(*set_);
  }

  // Until every replica is there and watched. Time goes on: a name that the system was slow to
  // answer is asked for again.
  void AwaitAll(const std::vector<std::string>& addresses) {
    for (const std::string& address : addresses) {
      const NameLookup::Addresses names = names_->Of(address);
      ASSERT_TRUE(names.ok());
      for (const std::string& name : *names) {
        while (Watches(name) == 0) {
          clock_.Advance(absl::Milliseconds(10));
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
    }
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

  // May be asked when the test is over.
  struct Names {
    base::Mutex mutex;
    std::map<std::string, NameLookup::Addresses> known ABSL_GUARDED_BY(mutex);

    NameLookup::Addresses Of(const std::string& address) {
      base::MutexLock lock(mutex);
      const auto found = known.find(address);
      if (found == known.end()) return std::vector<std::string>{address};
      return found->second;
    }
  };
  void SetNames(const std::string& address, NameLookup::Addresses names) {
    base::MutexLock lock(names_->mutex);
    names_->known.insert_or_assign(address, std::move(names));
  }

  std::unique_ptr<Replica> Make(const std::string& name) {
    auto replica = std::make_unique<Replica>();
    replica->name = name;
    auto vision = std::make_unique<testing::FakeVisionClient>();
    auto decode = std::make_unique<testing::FakeDecodePeer>();
    base::MutexLock lock(mutex_);
    Peer& peer = peers_[name];
    peer.vision = vision.get();
    peer.decode = decode.get();
    replica->vision = std::move(vision);
    replica->decode = std::move(decode);
    auto life = std::make_shared<int>();
    peer.life = life;
    replica->watch = [this, name, life](absl::Duration, Replica::OnLoad on_load,
                                        Replica::OnEnd on_end) {
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
  void EndWatch(const std::string& name, const absl::Status& status = absl::CancelledError("")) {
    std::shared_ptr<Watch> watch;
    {
      base::MutexLock lock(mutex_);
      watch = peers_[name].watches.back();
    }
    watch->End(status);
  }
  // Moves time on until it has come to that.
  void Await(const std::function<bool()>& done) {
    bool is_done = done();
    for (int i = 0; i < 60'000 && !is_done; ++i) {
      clock_.Advance(absl::Milliseconds(10));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      is_done = done();
    }
    EXPECT_TRUE(is_done);
  }
  bool IsUp(const std::string& name) {
    for (const ReplicaState& state : set_->States()) {
      if (state.view.name == name) return state.view.up;
    }
    return false;
  }
  // Requests that have ended, as whoever counts the room hears of them.
  uint64_t EndedHeard() {
    base::MutexLock lock(mutex_);
    uint64_t ended = 0;
    for (const ReplicaState& state : heard_) ended += state.load.requests_ended;
    return ended;
  }
  // Whether the replica made last of that name is there, if only for who uses it.
  bool Lives(const std::string& name) {
    base::MutexLock lock(mutex_);
    return !peers_[name].life.expired();
  }
  // Of the replica made last of that name; time stands still.
  void AwaitDeath(const std::string& name) {
    for (int i = 0; i < 60'000 && Lives(name); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(Lives(name));
  }
  bool AnyUp() { return set_->Pick("").ok(); }

  // What an answer says to the gateway.
  struct Events final : DecodeEvents {
    std::vector<std::string> routes;
    std::string text;
    std::vector<uint32_t> needed;
    std::atomic<int> ends = 0;  // who has seen one, sees what came before it
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
      status = end;
      ++ends;
    }
  };
  std::shared_ptr<DecodeCall> Ask(const std::shared_ptr<Events>& events,
                                  const std::string& affinity = "a") {
    std::shared_ptr<DecodeCall> call =
        decode_->Generate(std::make_shared<v1::DecodeStart>(), {}, {.affinity = affinity}, events);
    call->Start();
    return call;
  }
  // Who has the answer that was asked last, and the other one.
  std::pair<std::string, std::string> Holder() {
    const bool first = !peers_["r0:1"].decode->calls.empty();
    return first ? std::make_pair("r0:1", "r1:1") : std::make_pair("r1:1", "r0:1");
  }
  testing::FakeDecodePeer::Stream& Stream(const std::string& name, size_t index = 0) {
    return *peers_[name].decode->calls.at(index);
  }

  testing::FakeClock clock_;
  base::Mutex mutex_;
  const std::shared_ptr<Names> names_ = std::make_shared<Names>();
  std::vector<ReplicaState> heard_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Peer> peers_;  // calls and watches by the thread of the test
  std::unique_ptr<ReplicaSet> set_;
  std::unique_ptr<DecodeClient> decode_;
  std::unique_ptr<VisionClient> vision_;
};

}  // namespace tessera::gateway
