#include "services/gateway/admission/deadline_ladder.h"

#include <gtest/gtest.h>

#include "services/gateway/admission/pace.h"

namespace tessera::gateway {
namespace {

constexpr LadderStep kOutput = LadderStep::kOutput, kRedirect = LadderStep::kRedirect,
                     kRefuse = LadderStep::kRefuse, kRows = LadderStep::kRows;

// 100 tokens: 0.1 s to the first, 10 ms for each further one, 1.09 s in all.
LadderInput Work(absl::Duration left) {
  return {.left = left,
          .wait_first = absl::ZeroDuration(),
          .wait_least = absl::ZeroDuration(),
          .first_token = absl::Milliseconds(100),
          .soonest = absl::Milliseconds(80),
          .per_token = absl::Milliseconds(10),
          .max_tokens = 100,
          .min_tokens = 16};
}

TEST(LadderTest, WhatFitsIsNotChanged) {
  const LadderPlan plan =
      Climb({kRows, kOutput, kRedirect, kRefuse}, Work(absl::Milliseconds(1090)));
  EXPECT_EQ(plan.max_tokens, 100u);
  EXPECT_FALSE(plan.redirect || plan.refuse);
}

TEST(LadderTest, AnAnswerIsMadeAsShortAsTheTimeAsks) {
  const LadderPlan plan = Climb({kOutput, kRefuse}, Work(absl::Milliseconds(505)));
  EXPECT_EQ(plan.max_tokens, 41u);
  EXPECT_FALSE(plan.refuse);
}

TEST(LadderTest, NotShorterThanIsOfUse) {
  EXPECT_EQ(Climb({kOutput, kRefuse}, Work(absl::Milliseconds(250))).max_tokens, 16u);
  EXPECT_EQ(Climb({kOutput, kRefuse}, Work(absl::Milliseconds(150))).max_tokens, 16u);
  LadderInput few = Work(absl::Milliseconds(145));
  few.max_tokens = 5;  // fewer than the least: they fit
  EXPECT_EQ(Climb({kOutput, kRefuse}, few).max_tokens, 5u);
}

TEST(LadderTest, OnlyWhatCannotEvenBeginInTimeIsRefused) {
  EXPECT_FALSE(Climb({kRefuse}, Work(absl::Milliseconds(81))).refuse) << "it may be short";
  EXPECT_TRUE(Climb({kRefuse}, Work(absl::Milliseconds(79))).refuse);
  EXPECT_TRUE(Climb({kOutput, kRefuse}, Work(absl::Milliseconds(79))).refuse);
}

TEST(LadderTest, StepsAreTakenInTheirOrder) {
  LadderInput work = Work(absl::Milliseconds(1500));
  work.wait_first = absl::Seconds(1);
  work.wait_least = absl::Milliseconds(100);
  const LadderPlan shorter = Climb({kOutput, kRedirect, kRefuse}, work);
  EXPECT_EQ(shorter.max_tokens, 41u);
  EXPECT_FALSE(shorter.redirect);
  const LadderPlan elsewhere = Climb({kRedirect, kOutput, kRefuse}, work);
  EXPECT_EQ(elsewhere.max_tokens, 100u);
  EXPECT_TRUE(elsewhere.redirect);
}

TEST(LadderTest, BothStepsTogetherKeepWhatFits) {
  LadderInput work = Work(absl::Milliseconds(600));
  work.wait_first = absl::Seconds(1);
  work.wait_least = absl::Milliseconds(100);
  const LadderPlan plan = Climb({kOutput, kRedirect, kRefuse}, work);
  EXPECT_TRUE(plan.redirect);
  EXPECT_FALSE(plan.refuse);
  EXPECT_EQ(plan.max_tokens, 41u);
}

TEST(LadderTest, AReplicaThatIsNoEarlierIsNoHelp) {
  LadderInput work = Work(absl::Milliseconds(600));
  work.wait_first = work.wait_least = absl::Seconds(1);
  const LadderPlan plan = Climb({kRedirect, kRefuse}, work);
  EXPECT_FALSE(plan.redirect);
  EXPECT_TRUE(plan.refuse);
}

TEST(LadderTest, WithoutRefusalEverythingIsTried) {
  EXPECT_FALSE(Climb({kOutput}, Work(absl::ZeroDuration())).refuse);
  EXPECT_EQ(Climb({kOutput}, Work(absl::ZeroDuration())).max_tokens, 16u);
  EXPECT_EQ(Climb({}, Work(absl::ZeroDuration())).max_tokens, 100u);
}

TEST(LadderTest, ItsTextIsReadAndWritten) {
  EXPECT_EQ(LadderText(*ParseLadder("refuse,output")), "refuse,output");
  EXPECT_EQ(*ParseLadder(""), std::vector<LadderStep>{});
  EXPECT_EQ(LadderText({kRows, kOutput, kRedirect, kRefuse}), "rows,output,redirect,refuse");
  for (const char* bad : {"outputs", "output,output", "output, refuse"}) {
    EXPECT_FALSE(ParseLadder(bad).ok()) << bad;
  }
}

v1::DecodeEnd End(uint32_t prompt, uint32_t cached, uint32_t output, double prefill,
                  double generation) {
  v1::DecodeEnd end;
  end.mutable_usage()->set_prompt_tokens(prompt);
  end.mutable_usage()->set_cached_tokens(cached);
  end.mutable_usage()->set_output_tokens(output);
  end.mutable_stages()->set_prefill_seconds(prefill);
  end.mutable_stages()->set_generation_seconds(generation);
  return end;
}

TEST(PaceTest, TellsMediansOnceThereAreEnough) {
  Pace pace;
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  for (int i = 0; i < 7; ++i) {
    pace.Observe(End(300, 200, 11, 0.1, 0.2), now);
    EXPECT_FALSE(pace.Predict(100, now).has_value());
  }
  pace.Observe(End(300, 200, 11, 30, 60), now);  // the machine was stopped
  const auto forecast = pace.Predict(500, now);
  ASSERT_TRUE(forecast.has_value());
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast->first_token), 0.5, 1e-6);
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast->soonest), 0.5, 1e-6);
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast->per_token), 0.02, 1e-6);
}

TEST(PaceTest, ForgetsWhatIsOld) {
  Pace pace;
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  for (int i = 0; i < 8; ++i) pace.Observe(End(300, 200, 11, 0.1, 0.2), now);
  EXPECT_TRUE(pace.Predict(1, now + absl::Seconds(30)).has_value());
  EXPECT_FALSE(pace.Predict(1, now + absl::Seconds(31)).has_value());
}

}  // namespace
}  // namespace tessera::gateway
