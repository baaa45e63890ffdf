#include "services/decode/schedule/block_allotment.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "tests/services/decode/schedule/scheduler_fixture.h"
#include "tests/support/allocation_count.h"

namespace tessera::decode {
namespace {

constexpr int32_t kBlockSize = 4;

class BlockAllotmentTest : public ::testing::Test {
 protected:
  ~BlockAllotmentTest() override {
    for (Sequence& sequence : sequences_) allotment_.Release(sequence);
  }

  // Prompts of the same `text` begin alike.
  Sequence& Make(int prompt_tokens, int text = 0, Priority priority = Priority::kQuestion) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.id = sequences_.size();
    sequence.priority = priority;
    for (int i = 0; i < prompt_tokens; ++i) sequence.prompt.push_back(100 * text + i);
    sequence.max_tokens = sequence.ahead() ? 0 : 4;
    NameChain(sequence, kBlockSize);
    return sequence;
  }
  // A sequence whose first `computed` tokens are computed and named.
  Sequence& Computed(int prompt_tokens, int computed, int text = 0) {
    Sequence& sequence = Make(prompt_tokens, text);
    EXPECT_TRUE(allotment_.Take(sequence, allotment_.Lacking(sequence)));
    sequence.computed = computed;
    allotment_.NameFull(sequence);
    return sequence;
  }

  BlockPool pool_{8, kBlockSize};
  PrefixCache cache_{8, pool_};
  BlockAllotment allotment_{pool_, cache_};
  std::deque<Sequence> sequences_;
};

TEST_F(BlockAllotmentTest, AQuestionKeepsOneTokenPendingWhateverIsFound) {
  Computed(8, 8);
  Sequence& question = Make(8);
  allotment_.Match(question);
  EXPECT_EQ(question.named_blocks, 1);
  EXPECT_EQ(question.branch.tokens, 3) << "a copy of the second block, but for its last token";
  EXPECT_EQ(question.pending(), 1);
}

TEST_F(BlockAllotmentTest, AheadWorkTakesAllThatIsFound) {
  Computed(8, 8);
  Sequence& ahead = Make(8, 0, Priority::kAhead);
  allotment_.Match(ahead);
  EXPECT_EQ(ahead.named_blocks, 2);
  EXPECT_EQ(ahead.pending(), 0);
}

TEST_F(BlockAllotmentTest, TakingMoreThanIsAvailableTakesNothing) {
  Sequence& sequence = Make(4);
  EXPECT_FALSE(allotment_.Take(sequence, 9));
  EXPECT_TRUE(sequence.blocks.empty());
  EXPECT_EQ(sequence.blocks_taken, 0);
  EXPECT_EQ(allotment_.available(), 8);
}

TEST_F(BlockAllotmentTest, IdleBlocksOfTheCacheAreEvictedWhereNoneIsFree) {
  Sequence& first = Computed(24, 24);
  EXPECT_EQ(allotment_.available(), 2) << "the others are in use";
  allotment_.Release(first);
  EXPECT_EQ(pool_.free(), 2);
  EXPECT_EQ(allotment_.available(), 8) << "six are idle";
  Sequence& second = Make(28, 1);
  EXPECT_TRUE(allotment_.Take(second, allotment_.Lacking(second)));
  EXPECT_EQ(second.blocks_taken, 7);
  EXPECT_EQ(cache_.blocks(), 1);
}

TEST_F(BlockAllotmentTest, TheLastBlockIsKeptAsFarAsItWasFilled) {
  Sequence& first = Computed(8, 7);
  EXPECT_EQ(first.named_blocks, 1);
  EXPECT_EQ(allotment_.KeepTail(first), 0);
  allotment_.Release(first);
  Sequence& second = Make(8);
  allotment_.Match(second);
  EXPECT_EQ(second.computed, 7);
  EXPECT_EQ(allotment_.KeepTail(second), 0) << "its tail is another's block, which it would copy";
}

TEST_F(BlockAllotmentTest, ATailWithoutABlockInFrontOfItIsLost) {
  EXPECT_EQ(allotment_.KeepTail(Computed(8, 3)), 3);
}

TEST_F(BlockAllotmentTest, WhatIsNotSoundIsNeitherNamedNorKept) {
  Sequence& sequence = Make(8);
  ASSERT_TRUE(allotment_.Take(sequence, 2));
  sequence.computed = 7;
  sequence.sound = false;
  allotment_.NameFull(sequence);
  EXPECT_EQ(sequence.named_blocks, 0);
  EXPECT_EQ(allotment_.KeepTail(sequence), 7);
  EXPECT_EQ(cache_.blocks(), 0);
}

TEST_F(BlockAllotmentTest, ForgettingSparesWhatTheSequenceFound) {
  Computed(4, 4);
  Sequence& second = Make(9);
  allotment_.Match(second);
  second.blocks_reused = second.named_blocks;
  ASSERT_TRUE(allotment_.Take(second, allotment_.Lacking(second)));
  second.computed = 8;
  allotment_.NameFull(second);
  ASSERT_TRUE(cache_.Has(second.chain[1]));
  allotment_.Forget(second);
  EXPECT_TRUE(cache_.Has(second.chain[0]));
  EXPECT_FALSE(cache_.Has(second.chain[1]));
}

TEST_F(BlockAllotmentTest, WhoWaitsWithAForgottenBlockGoesOnWithTheOneThatWasComputedAnew) {
  Sequence& wrong = Computed(8, 4);
  Sequence& waiting = Make(16);
  allotment_.Match(waiting);
  ASSERT_EQ(waiting.named_blocks, 1);
  allotment_.Forget(wrong);
  allotment_.Release(wrong);
  Sequence& right = Computed(16, 12);
  allotment_.Match(waiting);
  ASSERT_EQ(waiting.named_blocks, 3);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(waiting.blocks[i].id(), right.blocks[i].id());
  allotment_.Release(right);
  const int32_t available = allotment_.available();
  EXPECT_EQ(available, 5);
  EXPECT_TRUE(allotment_.Take(Make(4 * available, 1), available)) << "all of it can be had";
}

TEST_F(BlockAllotmentTest, WhatIsComputedBehindAForgottenBlockIsNamedForNobody) {
  Sequence& wrong = Computed(8, 4);
  Sequence& late = Make(16);
  allotment_.Match(late);
  ASSERT_TRUE(allotment_.Take(late, allotment_.Lacking(late)));
  allotment_.Forget(wrong);
  allotment_.Release(wrong);
  Sequence& right = Computed(16, 12);
  late.computed = 12;
  allotment_.NameFull(late);
  EXPECT_EQ(late.named_blocks, 1);
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(late.blocks[i].id(), right.blocks[i].id());
}

TEST_F(BlockAllotmentTest, WithoutItsBranchASequenceComputesThoseTokensItself) {
  Computed(8, 8);
  Sequence& question = Make(8);
  allotment_.Match(question);
  ASSERT_EQ(question.computed, 7);
  allotment_.ReleaseBranch(question);
  EXPECT_EQ(question.computed, 4);
  EXPECT_TRUE(question.branch.block.empty());
}

TEST_F(BlockAllotmentTest, TokensThatAheadWorkComputedAreCountedAtTheirFirstUse) {
  Sequence& ahead = Make(8, 0, Priority::kAhead);
  ASSERT_TRUE(allotment_.Take(ahead, 2));
  ahead.computed = 8;
  allotment_.NameFull(ahead);
  allotment_.Release(ahead);
  Sequence& question = Make(8);
  allotment_.Match(question);
  EXPECT_EQ(allotment_.UseFound(question), 7);
  EXPECT_EQ(allotment_.UseFound(question), 0);
}

TEST_F(BlockAllotmentTest, GrowingAndNamingWithinTheReserveAllocatesNothing) {
  Sequence& sequence = Make(4);
  sequence.max_tokens = 20;
  sequence.generated.reserve(20);
  allotment_.Reserve(sequence);
  ASSERT_TRUE(allotment_.Take(sequence, 1));
  const size_t before = testing::AllocationCount();
  for (int i = 0; i < 20; ++i) {
    sequence.Append(7);
    ASSERT_TRUE(allotment_.Take(sequence, allotment_.Lacking(sequence)));
    sequence.computed = sequence.length() - 1;
    allotment_.NameFull(sequence);
  }
  EXPECT_EQ(testing::AllocationCount(), before);
  EXPECT_EQ(sequence.named_blocks, 5);
}

}  // namespace
}  // namespace tessera::decode
