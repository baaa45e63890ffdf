// What the scheduler finds in the prefix cache, and what it puts in.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/services/decode/schedule/scheduler_fixture.h"
#include "tests/support/allocation_count.h"

namespace tessera::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SchedulerPrefixTest : public SchedulerTest {
 protected:
  // A sequence with the first `tokens` tokens of `text` as its prompt.
  Sequence& AddText(const std::vector<int32_t>& text, int tokens, int max_tokens) {
    Sequence& sequence = Make(tokens, max_tokens);
    std::copy_n(text.begin(), tokens, sequence.prompt.begin());
    EXPECT_TRUE(Offer(sequence).ok());
    return sequence;
  }
  // That the plan, whose tokens begin at `place` of the only sequence, has the picture's own rows.
  void CheckRows(const Sequence& sequence, int place) {
    const BatchPlan& plan = scheduler_->plan();
    std::vector<int> rows(plan.tokens(), -1);
    for (const RowRange& range : plan.rows) {
      for (int64_t r = 0; r < range.rows.shape[0]; ++r) {
        const float* row = reinterpret_cast<const float*>(range.rows.data) + 2 * r;
        rows[range.first_token + r] = static_cast<int>(*row);
      }
    }
    const PromptPicture& picture = sequence.pictures[0];
    for (int t = 0; t < plan.tokens(); ++t, ++place) {
      const bool row = place >= picture.first_token && place < picture.end_token();
      ASSERT_EQ(plan.ids[t], sequence.prompt[place]);
      ASSERT_EQ(rows[t], row ? place - picture.first_token : -1);
    }
  }
};

TEST_F(SchedulerPrefixTest, TheSameBeginningIsComputedOnceAndOneTokenAtLeastAlways) {
  for (int tokens = 1; tokens <= 13; ++tokens) {
    Start(Small(), 32, 32);
    EXPECT_EQ(Run(Add(tokens, 1)), tokens);
    Sequence& second = Add(tokens, 1);
    // Behind the first block the others are shared in part too.
    const int found = tokens < 5 ? 0 : tokens - 1;
    EXPECT_EQ(second.computed, found);
    EXPECT_EQ(Run(second), tokens - found);
    EXPECT_EQ(second.cached_tokens, found);
    EXPECT_EQ(second.blocks_reused, (tokens - 1) / 4);
    EXPECT_EQ(scheduler_->counts().queried_tokens, 2 * tokens);
    EXPECT_EQ(scheduler_->counts().hit_tokens, found);
    EXPECT_EQ(pool_->used(), pool_->idle()) << "nobody holds a block but the cache";
  }
}

TEST_F(SchedulerPrefixTest, APromptOfExactlyTwoBlocksAskedThreeTimesAndThenALongerOne) {
  Start(Small(), 32, 32);
  EXPECT_EQ(Run(Add(8, 3)), 8 + 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Run(Add(8, 3)), 1 + 2) << "the last token once more, for its logits";
  }
  EXPECT_EQ(cache_->blocks(), 3) << "two full ones, and what was answered";
  EXPECT_EQ(Run(Add(9, 1)), 1);
}

TEST_F(SchedulerPrefixTest, ASecondTurnFindsTheFirstAnswerToo) {
  Start(Small(), 32, 32);
  Sequence& first = Add(6, 7);
  Run(first);
  std::vector<int32_t> text = first.prompt;
  text.insert(text.end(), first.generated.begin(), first.generated.end());
  ASSERT_EQ(text.size(), 13u);
  text.push_back(70);
  Sequence& second = AddText(text, 14, 1);
  EXPECT_EQ(second.computed, 12);
  EXPECT_EQ(Run(second), 2);
}

TEST_F(SchedulerPrefixTest, TwoThatRunAtOnceKeepOneCopyOfWhatTheyShare) {
  Start(Small(), 32, 32);
  Sequence& first = Add(4, 9);
  Sequence& second = Add(4, 9);
  EXPECT_THAT(Step(), ElementsAre("1:4", "2:4"));
  EXPECT_EQ(first.blocks[0].id(), second.blocks[0].id());
  EXPECT_EQ(pool_->used(), 1);
  Step();
  EXPECT_NE(first.blocks[1].id(), second.blocks[1].id()) << "each writes its own";
  for (int i = 0; i < 3; ++i) Step();
  EXPECT_EQ(first.blocks[1].id(), second.blocks[1].id());
}

// ------------------------------------------------------------------ blocks shared in part

TEST_F(SchedulerPrefixTest, ABlockSharedInPartIsCopiedBeforeTheFirstStep) {
  Start(Small(), 32, 32);
  Sequence& first = Add(12, 1);
  Run(first);
  std::vector<int32_t> text = first.prompt;
  text[10] = 7;
  Sequence& second = AddText(text, 12, 2);
  EXPECT_EQ(second.computed, 10);
  const int32_t source = second.branch.block.id();
  for (int attempt = 0; attempt < 2; ++attempt) {  // a failed step copies again
    const BatchPlan& plan = scheduler_->Next();
    EXPECT_THAT(plan.ids, ElementsAre(7, text[11]));
    ASSERT_EQ(plan.groups[0].copies.size(), 1u);
    EXPECT_EQ(plan.groups[0].copies[0].from, source);
    EXPECT_EQ(plan.groups[0].copies[0].to, second.blocks[2].id());
    EXPECT_EQ(pool_->references(second.blocks[2].id()), 1);
    EXPECT_EQ(pool_->references(source), 2) << "held until it is copied";
    if (attempt == 0) scheduler_->Abandon();
  }
  const int32_t token = 5;
  scheduler_->Commit({TokenRun(&token, 1)});
  EXPECT_EQ(pool_->references(source), 1);
  EXPECT_TRUE(scheduler_->Next().groups[0].copies.empty());
  scheduler_->Abandon();
  EXPECT_EQ(second.cached_tokens, 10);
}

TEST_F(SchedulerPrefixTest, SeveralGoOnInCopiesOfOneBlock) {
  Start(Small(), 32, 32);
  Sequence& first = Add(8, 1);
  Run(first);
  std::vector<int32_t> text = first.prompt;
  text[7] = 7;
  AddText(text, 8, 3);
  text[7] = 8;
  AddText(text, 8, 3);
  EXPECT_THAT(Step(), ElementsAre("2:1", "3:1"));
  EXPECT_EQ(scheduler_->plan().groups[0].copies.size(), 2u);
}

TEST_F(SchedulerPrefixTest, TenantsShareNothing) {
  Start(Small(), 32, 32);
  Run(Add(9, 1));
  Sequence& other = Make(9, 1);
  other.tenant = "other";
  ASSERT_TRUE(Offer(other).ok());
  EXPECT_EQ(other.computed, 0);
  EXPECT_EQ(Run(other), 9);
}

TEST_F(SchedulerPrefixTest, TwoPicturesNeverShareABlock) {
  Start(Small(), 32, 32);
  Sequence& first = MakePicture(4, 1, 8, 3, 1);
  ASSERT_TRUE(Offer(first).ok());
  Run(first);
  Sequence& other = MakePicture(4, 2, 8, 3, 1);
  ASSERT_TRUE(Offer(other).ok());
  EXPECT_EQ(other.computed, 4) << "the text in front of the picture";
  Run(other);
  Sequence& again = MakePicture(4, 1, 8, 3, 1);
  ASSERT_TRUE(Offer(again).ok());
  EXPECT_EQ(again.computed, 14);
}

TEST_F(SchedulerPrefixTest, RowsOfALastBlockThatIsNotFullAreSharedAndNotLackedAgain) {
  Start(Small(), 32, 32);
  Sequence& first = MakePicture(2, 1, 8, 1, 1);  // rows end at place 10, in the third block
  ASSERT_TRUE(Offer(first).ok());
  Run(first);
  Sequence& second = MakePicture(2, 1, 8, 3, 1);
  second.prompt.back() = 77;
  second.rows = std::vector<PictureRows>(1);  // nobody fetched them
  NameChain(second, 4);
  scheduler_->Open(second);
  EXPECT_EQ(second.computed, 11);
  EXPECT_FALSE(second.LacksRows());
  scheduler_->Remove(second);
}

TEST_F(SchedulerPrefixTest, AloneInAPoolThatItFillsItDoesWithoutTheBlockItWouldCopy) {
  Start(Small(), 4, 4);
  Run(AddText({1, 2, 3, 4, 5, 6, 7}, 7, 1));
  Sequence& large = AddText({1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14}, 13, 4);
  EXPECT_EQ(large.computed, 6);
  EXPECT_THAT(Step(), ElementsAre("2:8"));
  Run(large);
  EXPECT_EQ(large.generated.size(), 4u);
  EXPECT_EQ(large.cached_tokens, 4);
}

// A picture of six rows; each budget cuts it elsewhere, and each hit begins elsewhere.
TEST_F(SchedulerPrefixTest, RowsGoOnBehindAHitWhereverItEndsAndWhereverChunksEnd) {
  for (int before = 1; before <= 5; ++before) {
    for (int cached = 0; cached <= 12; ++cached) {
      for (int budget = 3; budget <= 9; ++budget) {
        SchedulerOptions options = Small();
        options.max_batch_tokens = budget;
        Start(options, 32, 32);
        Sequence& first = MakePicture(before, 1, 6, 2, 1);
        if (cached < first.prompt_tokens()) first.prompt.resize(std::max(cached, before + 6));
        ASSERT_TRUE(Offer(first).ok());
        Run(first);
        cache_->Evict(3 - std::min(cached / 4, 3));
        Sequence& second = MakePicture(before, 1, 6, 2, 1);
        ASSERT_TRUE(Offer(second).ok());
        int place = second.computed;
        while (second.finish == FinishReason::kNone) {
          scheduler_->Next();
          ASSERT_NO_FATAL_FAILURE(CheckRows(second, place));
          place += static_cast<int>(scheduler_->plan().tokens());
          const int32_t token = 5;
          const bool last = !scheduler_->plan().logit_tokens.empty();
          scheduler_->Commit({last ? TokenRun(&token, 1) : TokenRun()});
        }
        ASSERT_EQ(place, second.prompt_tokens());
        scheduler_->Remove(second);
      }
    }
  }
}

TEST_F(SchedulerPrefixTest, WhoLosesItsPinsAndHasNoRowsIsPutOutside) {
  SchedulerOptions options = Small();
  options.max_sequences = 1;
  Start(options, 6, 6);
  Sequence& first = MakePicture(4, 1, 8, 1, 1);
  ASSERT_TRUE(Offer(first).ok());
  Run(first);
  Sequence& running = Make(5, 19);
  running.prompt.assign(5, 77);
  ASSERT_TRUE(Offer(running).ok());
  Step();
  Sequence& second = MakePicture(4, 1, 8, 1, 1);
  second.rows[0].rows.data = nullptr;  // not needed: all of them are in the cache
  ASSERT_TRUE(Offer(second).ok());
  EXPECT_EQ(second.computed, 12);
  while (running.finish == FinishReason::kNone) Step();
  EXPECT_EQ(second.computed, 0) << "its pins went to the one that runs";
  EXPECT_THAT(Step(), IsEmpty());
  EXPECT_THAT(Expelled(), ElementsAre(second.id));
  EXPECT_EQ(second.state, Sequence::State::kOutside);
  second.rows[0] = RowsOf(8);
  ASSERT_TRUE(scheduler_->Enqueue(second).ok());
  EXPECT_GT(Run(second), 0);
  EXPECT_EQ(second.finish, FinishReason::kLength);
}

TEST_F(SchedulerPrefixTest, AFullCacheOfItsCapGoesOnWithoutKeeping) {
  Start(Small(), 32, 1);
  Sequence& first = Add(9, 8);
  Run(first);
  EXPECT_EQ(first.generated.size(), 8u);
  EXPECT_EQ(cache_->blocks(), 1);
  EXPECT_EQ(pool_->used(), 1);
  EXPECT_EQ(Add(9, 1).computed, 4);
}

TEST_F(SchedulerPrefixTest, DecodingAllocatesNothingWhileBlocksAreNamedAndEvicted) {
  SchedulerOptions options = Small();
  options.context_tokens = 400;
  Start(options, 40, 40);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3; ++i) {
      Sequence& sequence = Make(2 + i, 50);
      sequence.prompt[0] = 500 + 10 * round + i;
      ASSERT_TRUE(Offer(sequence).ok());
    }
    std::vector<TokenRun> runs(3);
    const int32_t token = 5;
    const auto step = [&] {
      scheduler_->Next();
      for (size_t s = 0; s < runs.size(); ++s) runs[s] = TokenRun(&token, 1);
      return scheduler_->Commit(runs).size();
    };
    while (scheduler_->running() < 3) Step();
    ASSERT_EQ(step(), 3u);
    const size_t before = testing::AllocationCount();
    for (int i = 0; i < 40; ++i) step();
    EXPECT_EQ(testing::AllocationCount(), before) << round;
    for (Sequence& sequence : sequences_) scheduler_->Remove(sequence);
  }
  EXPECT_GT(cache_->evicted_tokens(), 0);
}

}  // namespace
}  // namespace tessera::decode
