#include "services/decode/schedule/fair_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace tessera::decode {
namespace {

constexpr int32_t kQuantum = 100;

class FairQueueTest : public ::testing::Test {
 protected:
  // A request of `tokens` tokens that waits now.
  Sequence& Ask(const std::string& tenant, int32_t tokens) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.id = ++last_id_;
    sequence.tenant = tenant;
    sequence.max_tokens = tokens;
    queue_.Open(sequence);
    queue_.Push(sequence);
    return sequence;
  }
  // Serves the head whole; null when nobody waits.
  Sequence* Serve() {
    Sequence* head = queue_.Head();
    if (head == nullptr) return nullptr;
    EXPECT_EQ(queue_.Head(), head) << "the same until something happens";
    EXPECT_TRUE(queue_.Erase(*head));
    queue_.Charge(*head, head->max_tokens);
    queue_.Close(*head);
    served_[head->tenant] += head->max_tokens;
    all_served_ += head->max_tokens;
    return head;
  }

  FairQueue queue_{kQuantum};
  std::deque<Sequence> sequences_;
  SequenceId last_id_ = 0;
  std::map<std::string, int64_t> served_;
  int64_t all_served_ = 0;
};

TEST_F(FairQueueTest, OneTenantIsServedByArrival) {
  for (int i = 0; i < 20; ++i) Ask("a", 1 + 37 * i);
  for (SequenceId id = 1; id <= 20; ++id) EXPECT_EQ(Serve()->id, id);
  EXPECT_EQ(Serve(), nullptr);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(FairQueueTest, WhoComesBackTakesItsOldPlace) {
  Sequence& first = Ask("a", 10);
  Sequence& second = Ask("a", 10);
  Ask("a", 10);
  EXPECT_TRUE(queue_.Erase(first));
  EXPECT_TRUE(queue_.Erase(second));
  EXPECT_FALSE(queue_.Erase(second));
  EXPECT_EQ(queue_.size(), 1);
  queue_.Push(second);
  queue_.Push(first);
  for (SequenceId id = 1; id <= 3; ++id) EXPECT_EQ(Serve()->id, id);
}

TEST_F(FairQueueTest, TheYoungestIsTheOneThatCameLastOfAllTenants) {
  Ask("a", 10);
  Ask("b", 10);
  Ask("a", 10);
  const auto any = [](const Sequence&) { return true; };
  EXPECT_EQ(queue_.Youngest(any)->id, 3u);
  EXPECT_EQ(queue_.Youngest([](const Sequence& s) { return s.tenant == "b"; })->id, 2u);
  EXPECT_EQ(queue_.Youngest([](const Sequence&) { return false; }), nullptr);
}

TEST_F(FairQueueTest, TwoTenantsShareTokensEquallyWhateverTheSizesOfTheirRequests) {
  for (const auto& [small, large] : {std::pair(1, 1000), std::pair(30, 70), std::pair(99, 101)}) {
    const std::string one = "small " + std::to_string(small);
    const std::string other = "large " + std::to_string(large);
    for (int i = 0; i < 4; ++i) {
      Ask(one, small);
      Ask(other, large);
    }
    for (int i = 0; i < 5000; ++i) {
      const std::string tenant = Serve()->tenant;
      Ask(tenant, tenant == one ? small : large);  // each always has some waiting
      ASSERT_LE(std::abs(served_[one] - served_[other]), kQuantum + large);
    }
    while (Serve() != nullptr) {
    }
  }
}

TEST_F(FairQueueTest, AFloodOfOneTenantMakesTheOthersWaitForABoundedNumberOfTokens) {
  for (int i = 0; i < 500; ++i) Ask("flood", 250);
  for (int i = 0; i < 7; ++i) Serve();
  for (int round = 0; round < 20; ++round) {
    const int64_t before = all_served_;
    const Sequence* b = &Ask("b", 80);
    const Sequence* c = &Ask("c", 250);
    bool b_served = false;
    bool c_served = false;
    while (!b_served || !c_served) {
      const Sequence* served = Serve();
      b_served |= served == b;
      c_served |= served == c;
    }
    // Both, as much of the flood as the larger of them, and a turn.
    EXPECT_LE(all_served_ - before, 80 + 250 + 250 + kQuantum + 250);
  }
}

TEST_F(FairQueueTest, WhatIsComputedForATenantCountsAlsoWhenNoneOfItsRequestsWaits) {
  Sequence& running = Ask("a", 1);
  EXPECT_EQ(queue_.Head(), &running);
  queue_.Erase(running);
  queue_.Charge(running, 1000);  // as it decodes
  Ask("a", 50);
  for (int i = 0; i < 30; ++i) Ask("b", 50);
  int64_t before_a = 0;
  while (true) {
    const Sequence* served = Serve();
    if (served->tenant == "a") break;
    before_a += served->max_tokens;
  }
  EXPECT_GE(before_a, 900);
  EXPECT_LE(before_a, 1000 + 2 * kQuantum);
  queue_.Close(running);
}

// One tenant asks ten quanta at a time and only when the last is done, the other has a backlog of
// small ones: both get the same.
TEST_F(FairQueueTest, OneLargeThingAfterTheOtherIsNoMoreThanAShare) {
  for (int i = 0; i < 500; ++i) Ask("b", 20);
  Ask("a", 10 * kQuantum);
  for (int i = 0; i < 200; ++i) {
    if (Serve()->tenant == "a") Ask("a", 10 * kQuantum);
  }
  EXPECT_NEAR(served_["a"], served_["b"], 12 * kQuantum);
  while (Serve() != nullptr) {
  }
}

TEST_F(FairQueueTest, ADebtIsPaidOffWhileItsTenantAsksNothing) {
  Ask("a", 10 * kQuantum);
  Serve();
  for (int i = 0; i < 12; ++i) Ask("b", kQuantum);
  while (Serve() != nullptr) {
  }
  Ask("b", 50);
  Ask("a", 50);
  Ask("b", 50);
  Ask("b", 50);
  std::string order;
  while (Sequence* served = Serve()) order += served->tenant;
  EXPECT_LE(order.find('a'), 2u) << order;
}

TEST_F(FairQueueTest, ManyDebtorsAreNotRememberedForEver) {
  Ask("first", 10 * kQuantum);
  Serve();
  for (int i = 0; i < 5000; ++i) {
    Ask(std::to_string(i), 10 * kQuantum);
    Serve();
  }
  Ask("last", 1);
  EXPECT_EQ(Serve()->tenant, "last");
}

TEST_F(FairQueueTest, WhoHasNothingWaitingKeepsNoCredit) {
  Sequence& open = Ask("a", 1);  // holds the account open
  queue_.Erase(open);
  for (int i = 0; i < 50; ++i) {
    Ask("a", 1);
    Serve();
  }
  for (int i = 0; i < 9; ++i) {
    Ask("a", 40);
    Ask("b", 40);
  }
  served_.clear();
  for (int i = 0; i < 12; ++i) {
    Serve();
    EXPECT_LE(served_["a"], served_["b"] + kQuantum + 40);
  }
  queue_.Close(open);
}

// Whoever stands first of its tenant is served after a bounded number of tokens, whatever the
// others do: arrivals, sizes and tenants at random, accounts that end and begin.
TEST_F(FairQueueTest, NobodyStarves) {
  constexpr int kTenants = 6;
  constexpr int kLargest = 700;
  // A debt of one request takes this many rounds, in each of which each of the others has a turn.
  constexpr int64_t kBound =
      (kTenants - 1) * ((kLargest / kQuantum + 2) * kQuantum + 2 * kLargest) + kLargest;
  int64_t most_waited = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    std::map<std::string, std::pair<SequenceId, int64_t>> first;  // of a tenant, since when
    std::map<std::string, std::deque<SequenceId>> waiting;
    const int busy = 1 + below(6);
    for (int operation = 0; operation < 4000; ++operation) {
      if (below(7) < busy) {
        const std::string tenant(1, static_cast<char>('a' + below(kTenants)));
        const int size = below(3) == 0 ? 1 + below(kLargest) : 1 + below(20);
        waiting[tenant].push_back(Ask(tenant, size).id);
      } else if (const Sequence* served = Serve(); served != nullptr) {
        ASSERT_EQ(waiting[served->tenant].front(), served->id);
        waiting[served->tenant].pop_front();
        first.erase(served->tenant);
      }
      for (const auto& [tenant, ids] : waiting) {
        if (ids.empty()) continue;
        const auto [it, is_new] = first.try_emplace(tenant, ids.front(), all_served_);
        most_waited = std::max(most_waited, all_served_ - it->second.second);
        ASSERT_LE(all_served_ - it->second.second, kBound) << seed << " " << tenant;
      }
    }
    while (Serve() != nullptr) {
    }
  }
  EXPECT_GT(most_waited, kLargest) << "the bound was never near";
}

}  // namespace
}  // namespace tessera::decode
