#include "services/gateway/fleet/replica_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace tessera::gateway {
namespace {

constexpr absl::Duration kUntold = absl::Seconds(1), kTold = absl::Seconds(5);

struct Silent final : Call {
  void Start() override {}
  void Cancel() override {}
};

// One call, and what is to be known of it.
struct Known {
  std::shared_ptr<Call> call = std::make_shared<Silent>();
  std::shared_ptr<Hearing> hearing = std::make_shared<Hearing>();
  absl::Time heard;    // as Listen told of it
  bool spoke = false;  // since the last Listen
};

// Words, pauses and ends of calls in any order, and listening in any intervals, against the plain
// rule.
TEST(ReplicaCallsTest, ACallIsTakenOnceItIsSilentForItsTimeAndOnlyThen) {
  std::mt19937 random(18);
  absl::Time now = absl::UnixEpoch();
  absl::Time heard = absl::InfinitePast();
  ReplicaCalls calls;
  std::vector<Known> known;
  for (int step = 0; step < 100'000; ++step) {
    now += absl::Milliseconds(static_cast<int64_t>(random() % 400));
    const size_t any = known.empty() ? 0 : random() % known.size();
    switch (random() % 8) {
      case 0:
        if (known.size() > 20) break;
        known.emplace_back().heard = now;
        calls.Add(known.back().call, known.back().hearing, now);
        break;
      case 1:
      case 2:
        if (known.empty()) break;
        ++known[any].hearing->words;
        known[any].spoke = true;
        if (random() % 2 == 0) known[any].hearing->told = true;
        break;
      case 3:
        if (!known.empty()) known[any].hearing->paused = random() % 3 == 0;
        break;
      case 4:
        if (known.empty() || known[any].spoke) break;
        known.erase(known.begin() + static_cast<int64_t>(any));  // it has ended
        break;
      case 5: {
        for (Known& one : known) {
          if (one.spoke) heard = now;
          if (one.spoke || one.hearing->paused) one.heard = now;
          one.spoke = false;
        }
        ASSERT_EQ(calls.Listen(now), heard) << step;
        break;
      }
      default: {
        std::vector<std::shared_ptr<Call>> expected;
        std::erase_if(known, [&](const Known& one) {
          const bool silent = now - one.heard > (one.hearing->told ? kTold : kUntold);
          if (silent) expected.push_back(one.call);
          return silent;
        });
        std::vector<std::shared_ptr<Call>> taken = calls.TakeSilent(now, kUntold, kTold);
        ASSERT_TRUE(
            std::is_permutation(taken.begin(), taken.end(), expected.begin(), expected.end()))
            << step;
      }
    }
  }
  EXPECT_EQ(calls.TakeAll().size(), known.size());
  EXPECT_TRUE(calls.TakeAll().empty());
}

TEST(ReplicaCallsTest, OneOfWhichNothingIsHeardBeforeItsEndIsSilentFromItsBeginning) {
  ReplicaCalls calls;
  const auto call = std::make_shared<Silent>();
  calls.Add(call, nullptr, absl::UnixEpoch());
  EXPECT_EQ(calls.Listen(absl::UnixEpoch() + kUntold), absl::InfinitePast());
  EXPECT_TRUE(calls.TakeSilent(absl::UnixEpoch() + kUntold, kUntold, kTold).empty());
  EXPECT_EQ(calls.TakeSilent(absl::UnixEpoch() + kTold, kUntold, kTold).size(), 1u);
}

}  // namespace
}  // namespace tessera::gateway
