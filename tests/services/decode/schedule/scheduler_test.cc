#include "services/decode/schedule/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/services/decode/schedule/scheduler_fixture.h"

namespace tessera::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(SchedulerTest, NothingToDoIsAPlanWithoutSequences) {
  Start(Small(), 16);
  EXPECT_EQ(scheduler_->Next().sequences(), 0);
  EXPECT_EQ(scheduler_->Next().tokens(), 0);
  EXPECT_TRUE(scheduler_->idle());
}

TEST_F(SchedulerTest, ThePlanSaysWhereEveryTokenGoes) {
  Start(Small(), 16);
  Add(6, 4);
  const BatchPlan& plan = scheduler_->Next();
  EXPECT_THAT(plan.ids, ElementsAre(100, 101, 102, 103, 104, 105));
  for (const auto& axis : plan.positions) EXPECT_THAT(axis, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(plan.rotary_length, ElementsAre(6, 6, 6, 6, 6, 6));
  EXPECT_THAT(plan.query_begin, ElementsAre(0, 6));
  EXPECT_THAT(plan.adapter, ElementsAre(0));
  EXPECT_THAT(plan.logit_tokens, ElementsAre(5));
  EXPECT_THAT(plan.groups[0].context, ElementsAre(6));
  EXPECT_EQ(plan.groups[0].table_width, 2);
  const int32_t first = sequences_[0].blocks[0].id();
  const int32_t second = sequences_[0].blocks[1].id();
  EXPECT_THAT(plan.groups[0].block_table, ElementsAre(first, second));
  EXPECT_THAT(plan.groups[0].slots, ElementsAre(first * 4, first * 4 + 1, first * 4 + 2,
                                                first * 4 + 3, second * 4, second * 4 + 1));
  const std::vector<int32_t> token = {7};
  scheduler_->Commit({TokenRun(token)});

  const BatchPlan& next = scheduler_->Next();
  EXPECT_THAT(next.ids, ElementsAre(7));
  EXPECT_THAT(next.positions[0], ElementsAre(6));
  EXPECT_THAT(next.rotary_length, ElementsAre(7));
  EXPECT_THAT(next.groups[0].context, ElementsAre(7));
  scheduler_->Abandon();
}

TEST_F(SchedulerTest, RunningSequencesComeFirstThenPrefillsInOrderCutToTheBudget) {
  Start(Small(), 32);
  Add(3, 10);
  EXPECT_THAT(Step(), ElementsAre("1:3"));
  Add(10, 10);
  Add(2, 10);
  EXPECT_THAT(Step(), ElementsAre("1:1", "2:7"));
  EXPECT_THAT(Step(), ElementsAre("1:1", "2:3", "3:2"));
  EXPECT_THAT(Step(), ElementsAre("1:1", "2:1", "3:1"));
}

TEST_F(SchedulerTest, APromptInChunksAsksForLogitsWithItsLastOneOnly) {
  Start(Small(), 32);
  Sequence& sequence = Add(17, 4);
  EXPECT_TRUE(scheduler_->Next().logit_tokens.empty());
  scheduler_->Commit({TokenRun()});
  EXPECT_TRUE(scheduler_->Next().logit_tokens.empty());
  scheduler_->Commit({TokenRun()});
  EXPECT_THAT(scheduler_->Next().logit_tokens, ElementsAre(0));
  scheduler_->Abandon();
  EXPECT_EQ(sequence.computed, 16);
}

TEST_F(SchedulerTest, RowsOfAPictureAreCutWithTheChunkAtEveryBorder) {
  constexpr int kRows = 6;
  std::vector<uint16_t> data(kRows * 2);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint16_t>(i / 2);
  for (int budget = 3; budget <= 12; ++budget) {
    SchedulerOptions options = Small();
    options.max_batch_tokens = budget;
    BlockPool pool(32, 4);
    PrefixCache cache(0, pool);
    Scheduler scheduler(options, pool, cache);
    Sequence sequence;
    sequence.prompt = {50, 51, -1, -1, -1, -1, -1, -1, 52};
    sequence.pictures.push_back({store::EmbeddingKey(), 2, kRows});
    sequence.rows.push_back(
        {{DType::kF16, {kRows, 2}, reinterpret_cast<const std::byte*>(data.data())}, nullptr});
    NameChain(sequence, 4);
    scheduler.Open(sequence);
    ASSERT_TRUE(scheduler.Enqueue(sequence).ok());
    std::vector<int> seen;  // per token of the prompt: the row, or -1
    while (sequence.generated.empty()) {
      const BatchPlan& plan = scheduler.Next();
      std::vector<int> rows(plan.tokens(), -1);
      for (const RowRange& range : plan.rows) {
        for (int64_t r = 0; r < range.rows.shape[0]; ++r) {
          rows[range.first_token + r] = reinterpret_cast<const uint16_t*>(range.rows.data)[r * 2];
        }
      }
      for (int64_t t = 0; t < plan.tokens(); ++t) ASSERT_EQ(plan.ids[t] == -1, rows[t] >= 0);
      seen.insert(seen.end(), rows.begin(), rows.end());
      const int32_t token = 5;
      scheduler.Commit({plan.logit_tokens.empty() ? TokenRun() : TokenRun(&token, 1)});
    }
    EXPECT_THAT(seen, ElementsAre(-1, -1, 0, 1, 2, 3, 4, 5, -1)) << budget;
    EXPECT_TRUE(sequence.rows[0].here()) << "a preempted sequence computes them again";
    scheduler.Remove(sequence);
  }
}

TEST_F(SchedulerTest, AStopTokenEndsAnAnswerAndIsNotKept) {
  Start(Small(), 16);
  Sequence& sequence = Add(2, 10);
  Step(5);
  Step(9);
  EXPECT_EQ(sequence.finish, FinishReason::kStop);
  EXPECT_THAT(sequence.generated, ElementsAre(5));
  EXPECT_EQ(pool_->used(), 0);
}

TEST_F(SchedulerTest, MaxTokensEndsAnAnswer) {
  Start(Small(), 16);
  Sequence& sequence = Add(2, 3);
  for (int i = 0; i < 3; ++i) Step(5 + i);
  EXPECT_EQ(sequence.finish, FinishReason::kLength);
  EXPECT_THAT(sequence.generated, ElementsAre(5, 6, 7));
  EXPECT_TRUE(Step().empty());
}

TEST_F(SchedulerTest, SeveralTokensMayBeCommittedAndWhatIsBeyondTheEndIsDropped) {
  Start(Small(), 16);
  Sequence& sequence = Add(2, 10);
  scheduler_->Next();
  const std::vector<int32_t> run = {5, 6, 7};
  scheduler_->Commit({TokenRun(run)});
  EXPECT_EQ(sequence.pending(), 3);
  scheduler_->Next();
  const std::vector<int32_t> last = {8, 9, 11};
  EXPECT_EQ(scheduler_->Commit({TokenRun(last)})[0].new_tokens, 1);
  EXPECT_THAT(sequence.generated, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(sequence.finish, FinishReason::kStop);
}

TEST_F(SchedulerTest, WithoutATokenTheLastPlaceIsComputedAgain) {
  Start(Small(), 16);
  Sequence& sequence = Add(3, 10);
  scheduler_->Next();
  scheduler_->Commit({TokenRun()});
  EXPECT_EQ(sequence.pending(), 1);
  EXPECT_THAT(scheduler_->Next().ids, ElementsAre(102));
  scheduler_->Abandon();
}

TEST_F(SchedulerTest, LengthsAroundABlocksBorderTakeExactlyTheBlocksTheyNeed) {
  for (const int prompt : {1, 3, 4, 5, 8}) {
    for (const int answer : {1, 2, 3, 4, 5}) {
      SchedulerOptions options = Small();
      options.stop_ids = {};
      BlockPool pool(16, 4);
      PrefixCache cache(0, pool);
      Scheduler scheduler(options, pool, cache);
      Sequence sequence;
      sequence.prompt.assign(prompt, 30);
      sequence.max_tokens = answer;
      NameChain(sequence, 4);
      scheduler.Open(sequence);
      ASSERT_TRUE(scheduler.Enqueue(sequence).ok());
      while (sequence.finish == FinishReason::kNone) {
        scheduler.Next();
        ASSERT_EQ(pool.used(), (sequence.length() + 3) / 4);
        const int32_t token = 5;
        scheduler.Commit({TokenRun(&token, 1)});
      }
      EXPECT_EQ(static_cast<int>(sequence.generated.size()), answer);
      EXPECT_TRUE(scheduler.Remove(sequence));
      EXPECT_EQ(pool.used(), 0);
    }
  }
}

TEST_F(SchedulerTest, WhatCanNeverFitIsRefusedWithItsNumbers) {
  Start(Small(), 4);  // 16 places
  const absl::Status status = scheduler_->CheckFits(15, 0, 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(status), "CONTEXT_TOO_LONG");
  EXPECT_THAT(std::string(status.message()), HasSubstr("15 tokens"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("may have 17"));
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_TRUE(scheduler_->CheckFits(15, 0, 2).ok());

  Start(Small(), 1000);
  EXPECT_TRUE(scheduler_->CheckFits(60, 0, 4).ok());
  const absl::Status context = scheduler_->CheckFits(60, 33, 5);
  EXPECT_THAT(std::string(context.message()), HasSubstr("60 tokens, 33 of them"));
  EXPECT_THAT(std::string(context.message()), HasSubstr("64"));
  EXPECT_FALSE(scheduler_->CheckFits(60, 0, std::numeric_limits<int32_t>::max()).ok());
}

TEST_F(SchedulerTest, AFullQueueRefusesWithARetryDelay) {
  Start(Small(), 16);
  for (int i = 0; i < 8; ++i) Add(2, 2);
  const absl::Status status = Offer(Make(2, 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(status), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(status).has_value());
}

TEST_F(SchedulerTest, NobodyOvertakesTheFirstThatWaitsForBlocks) {
  Start(Small(), 5);
  Add(8, 5);  // 2 blocks, then 3
  Add(9, 4);  // 3 blocks and room for the other to grow: must wait
  Add(1, 1);  // would fit
  EXPECT_THAT(Step(), ElementsAre("1:8"));
  for (int i = 0; i < 4; ++i) EXPECT_THAT(Step(), ElementsAre("1:1"));
  EXPECT_THAT(Step(), ElementsAre("2:8"));
  EXPECT_THAT(Step(), ElementsAre("2:1", "3:1"));
}

TEST_F(SchedulerTest, RemovingASequenceFreesItsBlocksWhereverItStands) {
  Start(Small(), 8);
  Sequence& decoding = Add(2, 10);
  Step();
  Sequence& prefilling = Add(12, 2);
  Step();
  Sequence& waiting = Add(4, 4);
  EXPECT_TRUE(scheduler_->Remove(prefilling));
  EXPECT_TRUE(scheduler_->Remove(waiting));
  EXPECT_TRUE(scheduler_->Remove(decoding));
  EXPECT_FALSE(scheduler_->Remove(decoding));
  EXPECT_EQ(pool_->used(), 0);
  EXPECT_TRUE(Step().empty());
}

TEST_F(SchedulerTest, AnAbandonedStepIsPlannedAgain) {
  Start(Small(), 8);
  Add(5, 3);
  const std::vector<int32_t> ids = scheduler_->Next().ids;
  scheduler_->Abandon();
  EXPECT_EQ(scheduler_->Next().ids, ids);
  scheduler_->Abandon();
}

TEST_F(SchedulerTest, SamplingRowsCountTheTokensOfTheirOwnSequence) {
  Start(Small(), 16);
  Sequence& sequence = Make(2, 10);
  sequence.sampling.temperature = 0.5f;
  sequence.sampling.top_k = 10'000'000'000;
  sequence.sampling.seed = 42;
  ASSERT_TRUE(Offer(sequence).ok());
  Step();
  Step();
  scheduler_->Next();
  const kernels::SamplingRow& row = scheduler_->sampling()[0];
  EXPECT_EQ(row.token_index, 2u);
  EXPECT_EQ(row.seed, 42u);
  EXPECT_EQ(row.top_k, std::numeric_limits<int32_t>::max());
  EXPECT_EQ(row.temperature, 0.5f);
  scheduler_->Abandon();
}

TEST_F(SchedulerTest, ATinyTemperatureIsGreedy) {
  Start(Small(), 16);
  Sequence& sequence = Make(2, 10);
  sequence.sampling.temperature = 1e-9f;
  ASSERT_TRUE(Offer(sequence).ok());
  scheduler_->Next();
  EXPECT_EQ(scheduler_->sampling()[0].temperature, 0);
  scheduler_->Abandon();
}

}  // namespace
}  // namespace tessera::decode
