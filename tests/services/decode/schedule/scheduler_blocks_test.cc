// Who gets blocks when they run out, who is paused, and what is computed ahead.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/services/decode/schedule/scheduler_fixture.h"

namespace tessera::decode {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SchedulerBlocksTest : public SchedulerTest {
 protected:
  // As Add, with a prompt that no other sequence has.
  Sequence& AddOwn(int prompt_tokens, int max_tokens, const std::string& tenant = "") {
    Sequence& sequence = MakeOwn(prompt_tokens, max_tokens);
    sequence.tenant = tenant;
    EXPECT_TRUE(Offer(sequence).ok());
    return sequence;
  }
  Sequence& MakeOwn(int prompt_tokens, int max_tokens) {
    Sequence& sequence = Make(prompt_tokens, max_tokens);
    sequence.prompt[0] = 1000 + static_cast<int32_t>(sequence.id);
    return sequence;
  }
  // Ahead-work over a prompt as Make's.
  Sequence& AddAhead(int prompt_tokens) {
    Sequence& sequence = Make(prompt_tokens, 0);
    sequence.priority = Priority::kAhead;
    EXPECT_TRUE(Offer(sequence).ok());
    return sequence;
  }
  // Removes what Next put outside and has ended.
  void RemoveEnded() {
    const std::vector<Sequence*> expelled(scheduler_->expelled().begin(),
                                          scheduler_->expelled().end());
    for (Sequence* sequence : expelled) {
      if (sequence->finish != FinishReason::kNone) scheduler_->Remove(*sequence);
    }
  }
};

// ------------------------------------------------------------------ preemption

TEST_F(SchedulerBlocksTest, TheYoungestGoesBackWithItsTokensAndComesAgain) {
  Start(Small(), 6);
  Sequence& first = AddOwn(8, 12);
  Sequence& second = AddOwn(4, 12);
  EXPECT_THAT(Step(21), ElementsAre("1:8"));
  EXPECT_THAT(Step(22), ElementsAre("1:1", "2:4"));
  while (second.preemptions == 0) Step(23);
  EXPECT_EQ(first.preemptions, 0);
  EXPECT_EQ(second.state, Sequence::State::kWaiting);
  EXPECT_TRUE(second.blocks.empty());
  EXPECT_EQ(second.computed, 0);
  const std::vector<int32_t> kept = second.generated;
  EXPECT_FALSE(kept.empty());
  while (first.finish == FinishReason::kNone) {
    Step(24);
    EXPECT_EQ(second.generated, kept);
  }
  Run(second);
  EXPECT_EQ(second.generated.size(), 12u);
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), second.generated.begin()));
  EXPECT_EQ(scheduler_->counts().preemptions, second.preemptions);
}

TEST_F(SchedulerBlocksTest, WhatWasPreemptedFindsItsOwnBlocksAgainAndAnswersOnce) {
  Start(Small(), 6, 6);
  Sequence& first = AddOwn(8, 6);
  Sequence& second = AddOwn(8, 9);
  std::vector<int32_t> told;
  for (int32_t token = 20; second.finish == FinishReason::kNone; ++token) {
    const size_t before = second.generated.size();
    ASSERT_FALSE(Step(token).empty());
    ASSERT_LE(second.generated.size(), before + 1);
    if (second.generated.size() > before) told.push_back(token);
  }
  EXPECT_EQ(second.generated, told) << "each token once, in its order";
  EXPECT_GE(second.preemptions, 1);
  EXPECT_LT(second.computed_tokens, 2 * 17) << "not all of it was computed twice";
  EXPECT_EQ(first.preemptions, 0);
  EXPECT_EQ(scheduler_->counts().queried_tokens, 16) << "what it finds of itself is no hit";
  EXPECT_EQ(scheduler_->counts().hit_tokens, 0);
  EXPECT_EQ(second.cached_tokens, 0);
}

TEST_F(SchedulerBlocksTest, WhoEntersLeavesABlockForEachThatRuns) {
  Start(Small(), 3);
  Sequence& first = AddOwn(4, 4);
  Step();
  Sequence& second = AddOwn(4, 5);
  Sequence& third = AddOwn(4, 1);
  while (!scheduler_->idle()) Step();
  EXPECT_EQ(scheduler_->counts().preemptions, 0);
  EXPECT_EQ(first.generated.size() + second.generated.size() + third.generated.size(), 10u);
}

// Also when its tenant's credit is used up meanwhile by what already runs.
TEST_F(SchedulerBlocksTest, NobodyOfAnotherTenantOvertakesTheFirstThatWaitsForBlocks) {
  SchedulerOptions options = Small();
  options.tenant_quantum = 1;
  Start(options, 8);
  Sequence& running = AddOwn(4, 20, "a");
  Step();
  Sequence& large = AddOwn(28, 2, "a");
  Step();
  Sequence& small = AddOwn(2, 2, "b");
  while (running.finish == FinishReason::kNone) {
    Step();
    ASSERT_EQ(small.state, Sequence::State::kWaiting);
  }
  while (large.generated.empty()) Step();
  EXPECT_TRUE(small.generated.empty());
  while (!scheduler_->idle()) ASSERT_FALSE(Step().empty());
}

TEST_F(SchedulerBlocksTest, SeveralTokensAtATimeTakeTheirBlocksOrPreemptTheYoungest) {
  Start(Small(), 4);
  Sequence& first = AddOwn(4, 12);
  Sequence& second = AddOwn(4, 8);
  Step();
  const std::vector<int32_t> run = {5, 6, 7, 8, 5};
  while (first.finish == FinishReason::kNone) {
    scheduler_->Next();
    std::vector<TokenRun> runs(scheduler_->planned().size());
    for (const int32_t s : scheduler_->sampled_sequences()) runs[s] = TokenRun(run);
    for (const Progress& progress : scheduler_->Commit(runs)) {
      if (progress.sequence->finish != FinishReason::kNone) scheduler_->Remove(*progress.sequence);
    }
  }
  EXPECT_EQ(first.preemptions, 0);
  EXPECT_GE(second.preemptions, 1);
  EXPECT_EQ(first.generated.size(), 12u);
}

// Any pool that holds the largest request: every step does something, and all of it ends.
TEST_F(SchedulerBlocksTest, AnyPoolThatHoldsTheLargestRequestMakesProgress) {
  std::mt19937 random(11);
  const auto below = [&random](int n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    const int blocks = 1 + below(12);
    SchedulerOptions options = Small();
    options.max_sequences = 1 + below(6);
    options.max_waiting = 30;
    Start(options, blocks, below(blocks + 1));
    int64_t work = 0;
    const size_t begin = sequences_.size();
    for (int i = 0; i < 12; ++i) {
      const int tokens = 2 + below(4 * blocks);  // prompt and answer; the last needs no place
      const int prompt = 1 + below(tokens - 1);
      if (tokens > 64) continue;
      Sequence& sequence = below(3) == 0 ? Add(prompt, tokens - prompt)
                                         : AddOwn(prompt, tokens - prompt, below(2) ? "a" : "b");
      work += sequence.prompt_tokens() + sequence.max_tokens;
    }
    int64_t steps = 0;
    while (!scheduler_->idle()) {
      ASSERT_FALSE(Step().empty()) << "it stands still; round " << round;
      ASSERT_LT(++steps, 12 * work) << "round " << round;
    }
    for (size_t i = begin; i < sequences_.size(); ++i) {
      ASSERT_EQ(static_cast<int>(sequences_[i].generated.size()), sequences_[i].max_tokens);
    }
    ASSERT_EQ(pool_->used(), pool_->idle());
  }
}

TEST_F(SchedulerBlocksTest, AFloodOfOneTenantDelaysAnotherByABoundedNumberOfTokens) {
  SchedulerOptions options = Small();
  options.max_waiting = 1000;
  options.tenant_quantum = 16;
  Start(options, 64);
  for (int i = 0; i < 100; ++i) AddOwn(16, 4, "flood");
  for (int i = 0; i < 10; ++i) Step();
  Sequence& other = AddOwn(6, 2, "other");
  int steps = 0;
  while (other.generated.empty()) {
    Step();
    ASSERT_LT(++steps, 20);
  }
}

TEST_F(SchedulerBlocksTest, DecodingSequencesGetATokenInEveryStepWhileALongPromptIsCut) {
  Start(Small(), 32, 32);
  Sequence& first = AddOwn(2, 30);
  Sequence& second = AddOwn(2, 30);
  Step();
  Sequence& prompt = AddOwn(50, 2);
  for (int step = 1; prompt.generated.empty(); ++step) {
    const std::vector<std::string> planned = Step();
    ASSERT_THAT(planned, Contains("1:1"));
    ASSERT_THAT(planned, Contains("2:1"));
    ASSERT_EQ(first.generated.size(), 1u + step);
    ASSERT_EQ(second.generated.size(), 1u + step);
    ASSERT_LE(step, 9);
  }
}

// ------------------------------------------------------------------ pause

TEST_F(SchedulerBlocksTest, APausedSequenceIsNotPlannedAndKeepsItsBlocks) {
  Start(Small(), 16);
  Sequence& first = AddOwn(4, 9);
  AddOwn(3, 9);
  Step();
  scheduler_->Pause(first);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Step(), ElementsAre("2:1"));
  EXPECT_EQ(first.generated.size(), 1u);
  EXPECT_EQ(first.computed, 4);
  scheduler_->Resume(first);
  EXPECT_THAT(Step(), ElementsAre("1:1", "2:1"));
}

TEST_F(SchedulerBlocksTest, APausedSequenceGivesItsBlocksToThoseThatGoOn) {
  Start(Small(), 5);
  Sequence& paused = AddOwn(7, 9);
  Step();
  scheduler_->Pause(paused);
  Sequence& other = AddOwn(7, 9);
  while (paused.state == Sequence::State::kRunning) ASSERT_FALSE(Step().empty());
  EXPECT_THAT(Expelled(), ElementsAre(paused.id));
  EXPECT_EQ(paused.state, Sequence::State::kOutside);
  EXPECT_EQ(paused.finish, FinishReason::kNone);
  EXPECT_EQ(other.preemptions, 0);
  Run(other);
  EXPECT_EQ(other.generated.size(), 9u);
  scheduler_->Resume(paused);
  ASSERT_TRUE(scheduler_->Enqueue(paused).ok());
  Run(paused);
  EXPECT_EQ(paused.generated.size(), 9u);
}

TEST_F(SchedulerBlocksTest, PausedSequencesDoNotFillTheBatch) {
  Start(Small(), 32);
  for (int i = 0; i < 3; ++i) AddOwn(2, 9);
  Step();
  for (Sequence& sequence : sequences_) scheduler_->Pause(sequence);
  EXPECT_THAT(Step(), IsEmpty());
  EXPECT_THAT(Expelled(), IsEmpty()) << "nobody needs their places";
  AddOwn(2, 1);
  EXPECT_THAT(Step(), ElementsAre("4:2"));
  EXPECT_THAT(Expelled(), ElementsAre(3u)) << "the youngest of them";
}

TEST_F(SchedulerBlocksTest, PinsOfThoseThatWaitGoToWhoEnters) {
  SchedulerOptions options = Small();
  options.max_sequences = 2;
  Start(options, 5, 5);
  Run(Add(9, 1));  // the cache holds two blocks of Add's prompt
  Sequence& running = AddOwn(4, 13);
  Step();
  // Waits for rows that it lacks, behind the pinned blocks of its text.
  Sequence& outside = MakePicture(8, 1, 3, 1, 1);
  outside.rows[0].rows.data = nullptr;
  NameChain(outside, 4);
  scheduler_->Open(outside);
  EXPECT_EQ(outside.computed, 8);
  while (running.finish == FinishReason::kNone) ASSERT_FALSE(Step().empty());
  EXPECT_EQ(running.preemptions, 0);
  EXPECT_EQ(outside.computed, 0);
  EXPECT_TRUE(outside.blocks.empty());
}

// ------------------------------------------------------------------ ahead-work

TEST_F(SchedulerBlocksTest, AheadWorkTakesWhatABudgetLeavesAndLittleBesideQuestions) {
  SchedulerOptions options = Small();
  options.ahead_beside_tokens = 3;
  Start(options, 32, 32);
  AddAhead(40);
  EXPECT_THAT(Step(), ElementsAre("1:8"));
  AddOwn(4, 5);
  EXPECT_THAT(Step(), ElementsAre("2:4", "1:3"));
  EXPECT_THAT(Step(), ElementsAre("2:1", "1:3"));
  options.ahead_beside_tokens = 0;
  Start(options, 32, 32);
  AddAhead(40);
  AddOwn(4, 1);
  EXPECT_THAT(Step(), ElementsAre("4:4"));
  EXPECT_THAT(Step(), ElementsAre("3:8"));
}

TEST_F(SchedulerBlocksTest, AheadWorkAsksForNoLogitsAndEndsWhenAllOfItIsThere) {
  Start(Small(), 32, 32);
  Sequence& ahead = AddAhead(12);
  EXPECT_TRUE(scheduler_->Next().logit_tokens.empty());
  scheduler_->Commit({TokenRun()});
  EXPECT_EQ(ahead.finish, FinishReason::kNone);
  Step();
  EXPECT_EQ(ahead.finish, FinishReason::kLength);
  EXPECT_EQ(cache_->blocks(), 3);
  EXPECT_EQ(pool_->idle(), 3);
  Sequence& again = AddAhead(12);
  EXPECT_EQ(again.finish, FinishReason::kLength) << "nothing is left to do";
}

TEST_F(SchedulerBlocksTest, AQuestionBehindAheadWorkFindsItsBlocks) {
  Start(Small(), 32, 32);
  Run(AddAhead(12));
  Sequence& question = Add(14, 2);
  EXPECT_EQ(Run(question), 2 + 1);
  EXPECT_EQ(question.cached_tokens, 12);
  EXPECT_EQ(question.ahead_tokens, 12);
  EXPECT_EQ(cache_->ahead_used_tokens(), 12);
  Sequence& second = Add(14, 1);
  Run(second);
  EXPECT_EQ(second.ahead_tokens, 0) << "somebody has used it already";
}

TEST_F(SchedulerBlocksTest, AheadWorkIsDroppedWhenAQuestionWaitsAndItsFullBlocksStay) {
  SchedulerOptions options = Small();
  options.max_sequences = 1;
  Start(options, 32, 32);
  AddOwn(7, 20);
  Step();
  Sequence& ahead = AddAhead(24);
  EXPECT_THAT(Step(), ElementsAre("1:1")) << "no place in the batch";
  for (Sequence& sequence : sequences_) {
    if (&sequence != &ahead) scheduler_->Remove(sequence);
  }
  EXPECT_THAT(Step(), ElementsAre("2:8"));
  EXPECT_EQ(ahead.computed, 8);
  // A question that fills the step, so that one more waits.
  Sequence& question = Add(24, 2);
  AddOwn(4, 1);
  EXPECT_THAT(Step(), ElementsAre("3:8"));
  EXPECT_THAT(Expelled(), ElementsAre(ahead.id));
  EXPECT_EQ(ahead.finish, FinishReason::kDropped);
  EXPECT_TRUE(ahead.blocks.empty());
  RemoveEnded();
  Run(question);
  EXPECT_EQ(question.cached_tokens, 8);
  EXPECT_EQ(question.ahead_tokens, 8);
}

TEST_F(SchedulerBlocksTest, AheadWorkGivesItsBlocksToQuestionsAndWhatIsLostIsCounted) {
  SchedulerOptions options = Small();
  options.ahead_beside_tokens = 6;
  Start(options, 6, 6);
  Sequence& ahead = AddAhead(16);
  Step();
  EXPECT_EQ(ahead.computed, 8);
  AddOwn(2, 1);
  EXPECT_THAT(Step(), ElementsAre("2:2", "1:6"));
  EXPECT_EQ(ahead.computed, 14);
  Sequence& question = AddOwn(20, 2);
  Step();
  EXPECT_EQ(ahead.finish, FinishReason::kDropped);
  EXPECT_EQ(scheduler_->counts().ahead_dropped_tokens, 0) << "the last block is kept, too";
  RemoveEnded();
  Run(question);
  EXPECT_EQ(cache_->ahead_wasted_tokens(), 14);
}

}  // namespace
}  // namespace tessera::decode
