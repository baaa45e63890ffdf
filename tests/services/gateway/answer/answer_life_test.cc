#include "services/gateway/answer/answer_life.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/services/gateway/answer/answer_surroundings.h"
#include "tests/services/gateway/answer/shared_pictures.h"

namespace tessera::gateway {
namespace {

using Event = AnswerEventKind;
using State = AnswerState;

AnswerEvent Fails(Event kind) { return {.kind = kind, .status = absl::InternalError("failed")}; }

// A life to which `events` have happened, and what was last to be done.
AnswerStep After(const std::vector<AnswerEvent>& events) {
  AnswerStep step;
  for (const AnswerEvent& event : events) step = Transition(std::move(step.life), event);
  return step;
}

const std::vector<AnswerEvent> kToResolving = {
    {.kind = Event::kParsed, .pictures = 2}, {.kind = Event::kAsked}, {.kind = Event::kTurn}};
const std::vector<AnswerEvent> kToDecoding = {{.kind = Event::kParsed},
                                              {.kind = Event::kAsked},
                                              {.kind = Event::kTurn},
                                              {.kind = Event::kCallMade},
                                              {.kind = Event::kRouted}};

std::vector<AnswerEvent> operator+(std::vector<AnswerEvent> first,
                                   const std::vector<AnswerEvent>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

TEST(AnswerLifeTest, AnyOrderOfEventsKeepsEveryPromise) {
  constexpr uint32_t kOrders = 100'000;
  Coverage coverage = {};
  for (uint32_t seed = 0; seed < kOrders; ++seed) {
    const std::string broken = Surroundings(seed, coverage).Run();
    ASSERT_EQ(broken, "") << "seed " << seed;
  }
  for (size_t event = 0; event < kAnswerEvents; ++event) {
    for (size_t state = 0; state < kAnswerStates; ++state) {
      const AnswerRule rule = RuleOf(static_cast<State>(state), static_cast<Event>(event));
      EXPECT_EQ(coverage[event][state] > 0, rule != AnswerRule::kNever)
          << "event " << event << " in state " << state;
    }
  }
}

// Each has calls of its own; vision makes the rows of a picture once, for whoever goes on first.
TEST(AnswerLifeTest, RequestsThatShareTheirPicturesNeverWaitForEachOther) {
  constexpr uint32_t kOrders = 20'000;
  for (uint32_t seed = 0; seed < kOrders; ++seed) {
    ASSERT_TRUE(AllComeToDecode(seed)) << "seed " << seed;
  }
}

TEST(AnswerLifeTest, EncodingGoesOnOnceTheRowsOfEveryPictureAreKnown) {
  AnswerStep step = After(kToResolving + std::vector<AnswerEvent>{{Event::kPlanned}});
  EXPECT_FALSE(step.actions.Has(AnswerAction::kProceed));
  const AnswerStep planned = Transition(step.life, {.kind = Event::kPlanned, .picture = 1});
  EXPECT_TRUE(planned.actions.Has(AnswerAction::kProceed));
  const AnswerStep there = Transition(step.life, {.kind = Event::kResolved, .picture = 1});
  EXPECT_TRUE(there.actions.Has(AnswerAction::kProceed)) << "a record needs no plan";
  EXPECT_FALSE(there.actions.Has(AnswerAction::kAskDecode));
}

TEST(AnswerLifeTest, WithTheLastPictureTheRowsAreKnownBeforeDecodeIsAsked) {
  const AnswerStep step =
      After(kToResolving + std::vector<AnswerEvent>{{.kind = Event::kResolved, .picture = 1},
                                                    {.kind = Event::kResolved, .picture = 0}});
  EXPECT_TRUE(step.actions.Has(AnswerAction::kProceed));
  EXPECT_TRUE(step.actions.Has(AnswerAction::kAskDecode));
}

TEST(AnswerLifeTest, WhoLeavesWhileAdmissionIsAskedGivesTheTicketBackAfterwards) {
  const AnswerStep step =
      After({{.kind = Event::kParsed}, Fails(Event::kCancel), {.kind = Event::kAsked}});
  EXPECT_EQ(step.life.state, State::kEnded);
  EXPECT_TRUE(step.actions.Has(AnswerAction::kRelease));
  EXPECT_FALSE(step.actions.Has(AnswerAction::kEnd));
}

TEST(AnswerLifeTest, ACallThatWasMadeTooLateIsNeverBegun) {
  const AnswerStep step = After({{.kind = Event::kParsed},
                                 {.kind = Event::kTurn},
                                 Fails(Event::kCancel),
                                 {.kind = Event::kCallMade}});
  EXPECT_EQ(step.life.state, State::kEnded);
  EXPECT_TRUE(step.actions.empty());
}

TEST(AnswerLifeTest, WhereTheClientHasGoneDecodesWordIsTheEnd) {
  const AnswerStep step = After(kToDecoding + std::vector<AnswerEvent>{{.kind = Event::kPiece},
                                                                       Fails(Event::kCancel),
                                                                       {.kind = Event::kPiece},
                                                                       {.kind = Event::kDone}});
  EXPECT_TRUE(step.actions.Has(AnswerAction::kEnd));
  EXPECT_TRUE(step.life.cause.ok()) << step.life.cause;
}

TEST(AnswerLifeTest, AnAbortIsTheEndWhateverErrorDecodeSays) {
  const AnswerStep step =
      After(kToDecoding +
            std::vector<AnswerEvent>{Fails(Event::kAbort),
                                     {.kind = Event::kPiece},
                                     {.kind = Event::kDone, .status = absl::CancelledError("")}});
  EXPECT_TRUE(step.actions.Has(AnswerAction::kEnd));
  EXPECT_TRUE(absl::IsInternal(step.life.cause)) << step.life.cause;
}

TEST(AnswerLifeTest, AnAnswerThatIsWholeIsOneThoughItWasStoppedInTheSameMoment) {
  const std::vector<AnswerEvent> stopped =
      kToDecoding + std::vector<AnswerEvent>{{.kind = Event::kPiece}, Fails(Event::kAbort)};
  EXPECT_TRUE(After(stopped + std::vector<AnswerEvent>{{.kind = Event::kPiece}})
                  .actions.Has(AnswerAction::kTell));
  const AnswerStep step =
      After(stopped + std::vector<AnswerEvent>{{.kind = Event::kPiece}, {.kind = Event::kDone}});
  EXPECT_TRUE(step.actions.Has(AnswerAction::kEnd));
  EXPECT_TRUE(step.life.cause.ok()) << step.life.cause;
}

TEST(AnswerLifeTest, OfTwoCausesTheFirstIsTold) {
  const AnswerStep step = After(
      kToDecoding + std::vector<AnswerEvent>{
                        {.kind = Event::kPiece},
                        {.kind = Event::kSlow, .status = absl::ResourceExhaustedError("slow")},
                        Fails(Event::kAbort),
                        {.kind = Event::kDone, .status = absl::CancelledError("")}});
  EXPECT_TRUE(absl::IsResourceExhausted(step.life.cause)) << step.life.cause;
}

// Its first word was about a question that is no longer asked.
TEST(AnswerLifeTest, WhoLeavesWhileDecodeIsAskedAnewIsNotAnsweredByTheFirstWord) {
  const std::vector<AnswerEvent> renewing =
      kToDecoding + std::vector<AnswerEvent>{{.kind = Event::kRowsNeeded},
                                             {.kind = Event::kRowsMade,
                                              .status = absl::UnavailableError(""),
                                              .attempt = 1,
                                              .spare = true}};
  EXPECT_TRUE(After(renewing).actions.Has(AnswerAction::kCancelDecode));
  const AnswerStep step =
      After(renewing + std::vector<AnswerEvent>{
                           Fails(Event::kCancel), {.kind = Event::kPiece}, {.kind = Event::kDone}});
  EXPECT_TRUE(step.actions.Has(AnswerAction::kEnd));
  EXPECT_TRUE(absl::IsInternal(step.life.cause)) << step.life.cause;
}

TEST(AnswerLifeTest, AStageIsHowFarItCame) {
  EXPECT_STREQ(NameOf(After({{.kind = Event::kParsed}}).life.stage), "admission");
  EXPECT_STREQ(NameOf(After(kToResolving).life.stage), "encode");
  EXPECT_STREQ(NameOf(After(kToDecoding).life.stage), "decode");
  const std::vector<AnswerEvent> told = kToDecoding + std::vector<AnswerEvent>{{Event::kPiece}};
  EXPECT_STREQ(NameOf(After(told).life.stage), "generation");
  EXPECT_STREQ(NameOf(After(told + std::vector<AnswerEvent>{Fails(Event::kDone)}).life.stage),
               "generation");
}

TEST(AnswerLifeDeathTest, WhatCannotComeIsABug) {
  EXPECT_DEATH(After({{.kind = Event::kPiece}}), "event 9 cannot come in state 0");
  EXPECT_DEATH(After(kToDecoding + std::vector<AnswerEvent>{{Event::kDone}, {Event::kDone}}),
               "event 10 cannot come in state 8");
}

}  // namespace
}  // namespace tessera::gateway
