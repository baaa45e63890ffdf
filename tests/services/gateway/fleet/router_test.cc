#include "services/gateway/fleet/router.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace tessera::gateway {
namespace {

std::vector<ReplicaView> Up(int count) {
  std::vector<ReplicaView> replicas;
  for (int i = 0; i < count; ++i) {
    replicas.push_back({.name = "r" + std::to_string(i), .up = true});
  }
  return replicas;
}

std::string NameFor(const std::vector<ReplicaView>& replicas, const std::string& affinity) {
  const Route route = ChooseReplica(replicas, affinity);
  EXPECT_EQ(route.outcome, Route::Outcome::kFound);
  return replicas[route.index].name;
}

TEST(RouterTest, OneAffinityAlwaysGoesToOneReplicaWhateverTheOrder) {
  std::vector<ReplicaView> replicas = Up(5);
  const std::string first = NameFor(replicas, "session 7");
  std::reverse(replicas.begin(), replicas.end());
  EXPECT_EQ(NameFor(replicas, "session 7"), first);
  EXPECT_EQ(ChooseReplica(replicas, "session 7").reason, "affinity");
}

TEST(RouterTest, AffinitiesSpreadEvenly) {
  std::map<std::string, int> count;
  for (int i = 0; i < 4000; ++i) ++count[NameFor(Up(4), "s" + std::to_string(i))];
  ASSERT_EQ(count.size(), 4u);
  for (const auto& [name, n] : count) EXPECT_NEAR(n, 1000, 150) << name;
}

TEST(RouterTest, AReplicaThatGoesMovesItsOwnShareOnlyAndGetsItBack) {
  std::vector<ReplicaView> replicas = Up(4);
  std::map<std::string, std::string> before;
  for (int i = 0; i < 500; ++i) {
    const std::string affinity = "s" + std::to_string(i);
    before[affinity] = NameFor(replicas, affinity);
  }
  replicas[2].up = false;
  for (const auto& [affinity, name] : before) {
    const std::string now = NameFor(replicas, affinity);
    if (name == "r2") {
      EXPECT_NE(now, "r2");
      EXPECT_EQ(ChooseReplica(replicas, affinity).reason, "first choice r2 is down");
    } else {
      EXPECT_EQ(now, name);
    }
  }
  replicas[2].up = true;
  for (const auto& [affinity, name] : before) EXPECT_EQ(NameFor(replicas, affinity), name);
}

TEST(RouterTest, DrainingAndFullReplicasAreLeftOut) {
  std::vector<ReplicaView> replicas = Up(2);
  const size_t first = ChooseReplica(replicas, "a").index;
  replicas[first].draining = true;
  EXPECT_EQ(ChooseReplica(replicas, "a").index, 1 - first);
  EXPECT_EQ(ChooseReplica(replicas, "a").reason,
            "first choice " + replicas[first].name + " is draining");
  replicas[first].draining = false;
  replicas[first].full = true;
  EXPECT_EQ(ChooseReplica(replicas, "a").reason,
            "first choice " + replicas[first].name + " is full");
}

TEST(RouterTest, ABrokenFirstChoiceIsPassedOverAndNamed) {
  std::vector<ReplicaView> replicas = {{.name = "a", .up = true}, {.name = "b", .up = true}};
  const size_t first = ChooseReplica(replicas, "session").index;
  replicas[first].broken = true;
  const Route route = ChooseReplica(replicas, "session");
  EXPECT_EQ(route.index, 1 - first);
  EXPECT_EQ(route.reason, "first choice " + replicas[first].name + " is broken");
  EXPECT_FALSE(route.redirected);
  replicas[1 - first] = replicas[first];
  EXPECT_EQ(ChooseReplica(replicas, "session").outcome, Route::Outcome::kNoneUp);
}

TEST(RouterTest, WithoutAnAffinityTheLeastLoadedIsTaken) {
  std::vector<ReplicaView> replicas = Up(3);
  replicas[0].pressure = 0.5;
  replicas[1].pressure = 0.2;
  replicas[2].pressure = 0.9;
  EXPECT_EQ(ChooseReplica(replicas, "").index, 1u);
  EXPECT_EQ(ChooseReplica(replicas, "").reason, "least loaded");
  replicas[1].up = false;
  EXPECT_EQ(ChooseReplica(replicas, "").index, 0u);
  EXPECT_EQ(ChooseReplica(Up(1), "").reason, "only replica");
}

TEST(RouterTest, WhatWasPickedSinceItsWordCountsForAReplicaUnlessARequestBelongsThere) {
  std::vector<ReplicaView> replicas = Up(2);
  replicas[0].picked = 1;
  EXPECT_EQ(ChooseReplica(replicas, "").index, 1u);
  EXPECT_EQ(ChooseReplica(replicas, "").reason, "least loaded");
  replicas[1].pressure = 0.5;
  EXPECT_EQ(ChooseReplica(replicas, "").index, 0u);
  replicas[0].picked = 100;
  EXPECT_EQ(ChooseReplica(replicas, "").index, 1u);
  for (const char* affinity : {"a", "b", "c", "d"}) {
    EXPECT_EQ(NameFor(replicas, affinity), NameFor(Up(2), affinity));
  }
}

TEST(RouterTest, ASecondTryGoesElsewhereAndSaysSo) {
  const std::vector<ReplicaView> replicas = Up(3);
  const std::string first = NameFor(replicas, "a");
  const Route second = ChooseReplica(replicas, "a", {first});
  EXPECT_NE(replicas[second.index].name, first);
  EXPECT_EQ(second.reason, "first choice " + first + " is lost");
  EXPECT_EQ(ChooseReplica(Up(1), "a", {"r0"}).outcome, Route::Outcome::kNoneUp);
}

TEST(RouterTest, WhyNobodyTakesItIsTold) {
  std::vector<ReplicaView> replicas = Up(2);
  EXPECT_EQ(ChooseReplica({}, "a").outcome, Route::Outcome::kNoneUp);
  replicas[0].full = replicas[1].full = true;
  EXPECT_EQ(ChooseReplica(replicas, "a").outcome, Route::Outcome::kAllFull);
  replicas[0].up = replicas[1].up = false;
  EXPECT_EQ(ChooseReplica(replicas, "a").outcome, Route::Outcome::kNoneUp);
}

TEST(RouterTest, AFirstChoiceThatIsTooBusyForTheDeadlineIsPassedOver) {
  std::vector<ReplicaView> replicas = Up(3);
  const size_t first = ChooseReplica(replicas, "a").index;
  replicas[first].wait = absl::Seconds(2);
  const Route patient = ChooseReplica(replicas, "a", {}, absl::Seconds(2));
  EXPECT_EQ(patient.index, first);
  EXPECT_FALSE(patient.redirected);
  const Route hurried = ChooseReplica(replicas, "a", {}, absl::Seconds(1));
  EXPECT_NE(hurried.index, first);
  EXPECT_TRUE(hurried.redirected);
  EXPECT_EQ(hurried.reason,
            "first choice " + replicas[first].name + " is too busy for the deadline");
}

TEST(RouterTest, WhereAllAreTooBusyTheEarliestIsChosen) {
  std::vector<ReplicaView> replicas = Up(3);
  for (size_t i = 0; i < 3; ++i) replicas[i].wait = absl::Seconds(3 - static_cast<int>(i));
  EXPECT_EQ(ChooseReplica(replicas, "a", {}, absl::ZeroDuration()).index, 2u);
  replicas[2].up = false;
  EXPECT_EQ(ChooseReplica(replicas, "a", {}, absl::ZeroDuration()).index, 1u);
}

}  // namespace
}  // namespace tessera::gateway
