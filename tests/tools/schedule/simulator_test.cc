#include "tools/schedule/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace tessera::tools {
namespace {

constexpr char kA10[] = "tests/bench/profiles/a10-llava7b-w4-kv8.json";

SimulatorOptions Defaults() {
  SimulatorOptions options;
  options.scheduler.context_tokens = 4096;
  options.blocks = 2048;
  options.prefix_cache_blocks = options.blocks;
  return options;
}

StepTime A10() {
  const absl::StatusOr<StepTime> time = StepTime::Load(kA10);
  EXPECT_TRUE(time.ok()) << time.status();
  return *time;
}

std::vector<SimulatedTurn> Turn(const Simulated& result, int turn) {
  std::vector<SimulatedTurn> turns;
  for (const SimulatedTurn& t : result.turns) {
    if (t.turn == turn) turns.push_back(t);
  }
  return turns;
}

// What a service of two A10 promises eight users, each with a picture of 576 rows of their own.
TEST(SimulatorTest, EightUsersOnAnA10AreAnsweredNearTheFloor) {
  const StepTime a10 = A10();
  TraceOptions make;
  const Simulated result = Simulate(Defaults(), a10, MakeTrace(make));
  const std::vector<SimulatedTurn> first = Turn(result, 0);
  ASSERT_EQ(first.size(), 8u);
  double last_end = 0, last_first = 0, sum_first = 0;
  for (const SimulatedTurn& turn : first) {
    last_end = std::max(last_end, turn.end);
    last_first = std::max(last_first, turn.first_token);
    sum_first += turn.first_token;
  }
  const int64_t prompt = first[0].prompt_tokens;
  const double floor = 8 * a10.Of(prompt, prompt) + 20 * a10.Of(8, 8 * (prompt + 10));
  EXPECT_LE(last_end, 1.15 * floor);
  EXPECT_LE(sum_first / 8, 0.65 * last_first);
}

TEST(SimulatorTest, ASecondTurnHasItsFirstTokenWithinThreeSteps) {
  const Simulated result = Simulate(Defaults(), A10(), MakeTrace({}));
  for (int turn = 1; turn < 4; ++turn) {
    const std::vector<SimulatedTurn> turns = Turn(result, turn);
    ASSERT_EQ(turns.size(), 8u);
    for (const SimulatedTurn& t : turns) {
      EXPECT_LE(t.steps_to_first_token, 3);
      // All but the last block of what was said, and the question.
      EXPECT_GE(t.cached_tokens, t.prompt_tokens - 20 - 16 - 1);
    }
  }
}

TEST(SimulatorTest, WithoutThePrefixCacheEveryTurnComputesItsWholePrompt) {
  SimulatorOptions options = Defaults();
  options.prefix_cache_blocks = 0;
  const Simulated without = Simulate(options, A10(), MakeTrace({}));
  const Simulated with = Simulate(Defaults(), A10(), MakeTrace({}));
  EXPECT_EQ(without.counts.hit_tokens, 0);
  EXPECT_GT(without.computed_tokens, 3 * with.computed_tokens);
  EXPECT_EQ(without.answer_tokens, with.answer_tokens);
}

TEST(SimulatorTest, AStepTakesTheLongerOfArithmeticAndWeightsAndTheKeysBeside) {
  StepTime time;
  time.seconds_per_token = 0.001;
  time.weight_bytes = 100;
  time.kv_bytes_per_token = 2;
  time.bytes_per_second = 10000;
  time.overhead_seconds = 0.5;
  EXPECT_DOUBLE_EQ(time.Of(1, 0), 0.01 + 0.5);
  EXPECT_DOUBLE_EQ(time.Of(20, 0), 0.02 + 0.5);
  EXPECT_DOUBLE_EQ(time.Of(20, 50), 0.02 + 0.01 + 0.5);
}

TEST(SimulatorTest, EqualPicturesOfDifferentUsersAreComputedOnce) {
  TraceOptions make;
  make.arrivals = Arrivals::kPoisson;
  make.rate = 2;
  make.sessions = 20;
  make.turns = 1;
  make.pictures = 1;
  const Simulated result = Simulate(Defaults(), A10(), MakeTrace(make));
  int missed = 0;
  for (const SimulatedTurn& turn : result.turns) missed += turn.cached_tokens == 0;
  EXPECT_EQ(missed, 1);
}

TEST(SimulatorTest, TenantsShareTheDeviceWhateverTheyAskFor) {
  TraceOptions make;
  make.sessions = 60;
  make.turns = 1;
  make.tenants = 2;
  std::vector<TraceSession> trace = MakeTrace(make);
  // The first tenant asks ten times as much.
  for (TraceSession& session : trace) {
    if (session.tenant == "tenant 0") session.turns[0].question_tokens = 1500;
  }
  SimulatorOptions options = Defaults();
  options.blocks = 500;
  const Simulated result = Simulate(options, A10(), trace);
  double end[2] = {0, 0};
  for (const SimulatedTurn& turn : result.turns) {
    end[turn.session % 2] = std::max(end[turn.session % 2], turn.end);
  }
  EXPECT_LT(end[1], 0.75 * end[0]);
}

TEST(SimulatorTest, ASmallCachePreemptsAndAnswersEverybody) {
  SimulatorOptions options = Defaults();
  options.blocks = 80;
  options.prefix_cache_blocks = 80;
  TraceOptions make;
  make.answer_tokens = 300;
  make.turns = 1;
  const Simulated result = Simulate(options, A10(), MakeTrace(make));
  EXPECT_EQ(result.answer_tokens, 8 * 300);
  EXPECT_GT(result.counts.preemptions, 0);
}

TEST(SimulatorTest, WhatCanNeverFitIsRefusedAndEndsItsSession) {
  SimulatorOptions options = Defaults();
  options.scheduler.context_tokens = 640;
  TraceOptions make;
  make.sessions = 1;
  const Simulated result = Simulate(options, A10(), MakeTrace(make));
  ASSERT_EQ(result.turns.size(), 2u);
  EXPECT_FALSE(result.turns[0].refused);
  EXPECT_TRUE(result.turns[1].refused);
}

TEST(TraceTest, EqualSeedsMakeEqualTracesAndOthersDiffer) {
  TraceOptions make;
  make.arrivals = Arrivals::kPoisson;
  make.sessions = 1000;
  make.rate = 4;
  const std::vector<TraceSession> one = MakeTrace(make), same = MakeTrace(make);
  make.seed = 2;
  const std::vector<TraceSession> other = MakeTrace(make);
  EXPECT_EQ(one.back().arrival_seconds, same.back().arrival_seconds);
  EXPECT_NE(one.back().arrival_seconds, other.back().arrival_seconds);
  EXPECT_NEAR(one.back().arrival_seconds, 250, 30);  // 1000 sessions at 4 a second
}

TEST(TraceTest, AFileIsReadAndABadLineIsNamed) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/trace.jsonl";
  std::ofstream(path) << R"({"arrival_seconds": 1.5, "picture": "p", "rows": 4, "turns": [{}]})"
                      << "\n\n"
                      << R"({"turns": [{"question_tokens": 3}, {"think_seconds": 2}]})"
                      << "\n";
  const auto trace = ReadTrace(path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->size(), 2u);
  EXPECT_EQ((*trace)[0].arrival_seconds, 1.5);
  EXPECT_EQ((*trace)[1].turns[0].question_tokens, 3);
  EXPECT_EQ((*trace)[1].turns[1].think_seconds, 2);
  for (const char* bad :
       {"{", "[]", R"({"turns": []})", R"({"turns": [{"answer_tokens": 0}]})",
        R"({"rows": 4, "turns": [{}]})", R"({"arrival_seconds": -1, "turns": [{}]})",
        R"({"turns": [{"answer_tokens": 1.5}]})", R"({"tenant": 3, "turns": [{}]})"}) {
    std::ofstream(path) << R"({"turns": [{}]})"
                        << "\n"
                        << bad << "\n";
    const absl::Status status = ReadTrace(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find("line 2"), std::string::npos) << status;
  }
  EXPECT_EQ(ReadTrace(path + "x").status().code(), absl::StatusCode::kNotFound);
}

TEST(StepTimeTest, AProfileWithAnUnknownOrMissingKeyIsRefused) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/profile.json";
  for (const char* bad :
       {"[]", "{}", R"({"name": "x", "seconds_per_token": -1})", R"({"seconds_per_tokn": 1})"}) {
    std::ofstream(path) << bad;
    EXPECT_EQ(StepTime::Load(path).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace tessera::tools
