#include "services/decode/cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "tests/support/allocation_count.h"

namespace tessera::decode {
namespace {

constexpr int32_t kIds[] = {1, 2, 3, 4};
constexpr int32_t kRowIds[] = {-1, -1, -1, -1};

BlockContent Content(absl::Span<const int32_t> ids, int32_t rows, bool ahead) {
  BlockContent content;
  content.tokens.ids = ids;
  content.tokens.rows = rows;
  content.ahead = ahead;
  return content;
}

const BlockContent kText = Content(kIds, 0, false);
const BlockContent kRows = Content(kRowIds, 4, false);
const BlockContent kAhead = Content(kIds, 0, true);

// Even and odd names fall into two buckets.
BlockHash Name(int number) {
  BlockHash name{};
  name[0] = static_cast<uint8_t>(number % 2);
  name[20] = static_cast<uint8_t>(number);
  return name;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  void Start(int32_t blocks, int32_t cap) {
    cache_.reset();
    pool_ = std::make_unique<BlockPool>(blocks, 4);
    cache_ = std::make_unique<PrefixCache>(cap, *pool_);
  }

  static std::vector<BlockHash> Names(std::initializer_list<int> numbers) {
    std::vector<BlockHash> names;
    for (const int number : numbers) names.push_back(Name(number));
    return names;
  }
  // Computes the blocks of a chain that are not here and puts them in; who holds the result holds
  // the blocks.
  std::vector<Block> Fill(std::initializer_list<int> numbers, BlockContent content = kText) {
    const std::vector<BlockHash> chain = Names(numbers);
    std::vector<Block> blocks;
    cache_->Extend(chain, static_cast<int32_t>(chain.size()), blocks);
    for (size_t i = blocks.size(); i < chain.size(); ++i) {
      EXPECT_TRUE(pool_->Take(1, blocks));
      EXPECT_TRUE(cache_->Insert(chain[i], i == 0 ? -1 : blocks[i - 1].id(), content, blocks[i]));
    }
    return blocks;
  }
  // How many blocks of the chain are found.
  int Hit(std::initializer_list<int> numbers) {
    std::vector<Block> blocks;
    cache_->Extend(Names(numbers), 100, blocks);
    return static_cast<int>(blocks.size());
  }

  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<PrefixCache> cache_;
};

TEST_F(PrefixCacheTest, ABlockIsContinuedFromTheChildThatBeginsWithMostOfIt) {
  Start(8, 8);
  const std::vector<Block> held = Fill({1});
  const int32_t ids[3][4] = {{5, 6, 7, 8}, {5, 6, 9, 9}, {5, 6, 7, -1}};
  std::vector<Block> children;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pool_->Take(1, children));
    // The last one is not full.
    const auto tokens = absl::MakeConstSpan(ids[i]).first(i == 2 ? 3 : 4);
    ASSERT_TRUE(
        cache_->Insert(Name(10 + i), held[0].id(), Content(tokens, 0, false), children.back()));
  }
  const auto continued = [&](std::vector<int32_t> wanted) {
    BlockTokens tokens;
    tokens.ids = wanted;
    const Branch branch = cache_->Continue(held[0].id(), tokens);
    return std::pair(branch.tokens, branch.block.id());
  };
  EXPECT_EQ(continued({5, 6, 9, 1}), std::pair(3, children[1].id()));
  EXPECT_EQ(continued({5, 6, 7, 8}), std::pair(4, children[0].id()));
  EXPECT_EQ(continued({5}).first, 1);
  EXPECT_EQ(continued({6, 5}), std::pair(0, -1));
  EXPECT_EQ(continued({}).first, 0);
}

TEST_F(PrefixCacheTest, WhatIsForgottenIsNotFoundNorWhatStandsBehindIt) {
  Start(8, 8);
  Fill({1, 2, 3});
  Fill({1, 2, 4});
  {
    const std::vector<Block> held = Fill({1, 2});
    cache_->Forget(absl::MakeConstSpan(held).subspan(1));
    EXPECT_EQ(Hit({1, 2, 3}), 1);
    // Who computes it anew, under another block, does not find what was built on the old one.
    std::vector<Block> anew;
    ASSERT_TRUE(pool_->Take(1, anew));
    EXPECT_TRUE(cache_->Insert(Name(2), held[0].id(), kText, anew[0]));
    EXPECT_EQ(Hit({1, 2, 3}), 2);
    EXPECT_EQ(Hit({1, 2, 4}), 2);
    // And who holds the old one can put nothing behind it.
    std::vector<Block> more;
    ASSERT_TRUE(pool_->Take(1, more));
    EXPECT_FALSE(cache_->Insert(Name(5), held[1].id(), kText, more[0]));
    EXPECT_EQ(cache_->Continue(held[1].id(), kText.tokens).tokens, 0);
  }
  EXPECT_EQ(cache_->Evict(3), 3) << "the forgotten ones go first";
  EXPECT_EQ(Hit({1, 2}), 2);
  EXPECT_EQ(cache_->Evict(8), 2);
  EXPECT_EQ(pool_->free(), 8);
}

TEST_F(PrefixCacheTest, RowsAreTheSameOnlyOfOnePictureAndOneNumber) {
  Start(8, 8);
  const std::vector<Block> held = Fill({1});
  std::vector<Block> child;
  ASSERT_TRUE(pool_->Take(1, child));
  BlockContent content = Content(kRowIds, 4, false);
  content.tokens.picture = store::EmbeddingKey(base::Sha256Of("a"));
  content.tokens.first_row = 6;
  ASSERT_TRUE(cache_->Insert(Name(2), held[0].id(), content, child[0]));
  BlockTokens same = content.tokens;
  EXPECT_EQ(cache_->Continue(held[0].id(), same).tokens, 4);
  same.rows = 2;  // then another picture's
  EXPECT_EQ(cache_->Continue(held[0].id(), same).tokens, 2);
  BlockTokens other = content.tokens;
  other.picture = store::EmbeddingKey(base::Sha256Of("b"));
  EXPECT_EQ(cache_->Continue(held[0].id(), other).tokens, 0);
  BlockTokens moved = content.tokens;
  moved.first_row = 5;
  EXPECT_EQ(cache_->Continue(held[0].id(), moved).tokens, 0);
}

TEST_F(PrefixCacheTest, ExtendFindsAChainAsFarAsItIsHere) {
  Start(8, 8);
  const std::vector<Block> held = Fill({1, 2, 3});
  std::vector<Block> blocks;
  cache_->Extend(Names({1, 2, 4}), 3, blocks);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].id(), held[0].id());
  EXPECT_EQ(blocks[1].id(), held[1].id());
  EXPECT_EQ(pool_->references(held[0].id()), 3);
  EXPECT_EQ(pool_->references(held[2].id()), 2);
  EXPECT_EQ(Hit({2, 3}), 2) << "names cover all in front of them: the chain is not looked at";
  EXPECT_EQ(Hit({4, 2}), 0);
}

TEST_F(PrefixCacheTest, ExtendGoesOnBehindWhatIsHeldAndStopsAtItsLimit) {
  Start(8, 8);
  Fill({1, 2, 3});
  std::vector<Block> blocks;
  for (const int32_t limit : {-1, 0}) {
    cache_->Extend(Names({1, 2, 3}), limit, blocks);
    EXPECT_TRUE(blocks.empty());
  }
  for (int32_t limit = 1; limit <= 4; ++limit) {
    cache_->Extend(Names({1, 2, 3}), limit, blocks);
    EXPECT_EQ(blocks.size(), static_cast<size_t>(std::min(limit, 3)));
  }
  cache_->Extend({}, 5, blocks);
  EXPECT_EQ(blocks.size(), 3u);
}

TEST_F(PrefixCacheTest, LeavesGoFirstSoNothingIsFoundBehindAGap) {
  Start(8, 8);
  Fill({1, 2, 3});
  EXPECT_EQ(pool_->idle(), 3);
  EXPECT_EQ(cache_->Evict(1), 1);
  EXPECT_EQ(Hit({1, 2, 3}), 2);
  EXPECT_EQ(cache_->Evict(1), 1);
  EXPECT_EQ(Hit({1, 2, 3}), 1);
  EXPECT_EQ(cache_->Evict(5), 1);
  EXPECT_EQ(Hit({1, 2, 3}), 0);
  EXPECT_EQ(cache_->Evict(1), 0);
  EXPECT_EQ(cache_->evicted_tokens(), 12);
  EXPECT_EQ(pool_->free(), 8);
}

TEST_F(PrefixCacheTest, ABlockThatSomebodyHoldsIsNeverEvicted) {
  Start(8, 8);
  std::vector<Block> held = Fill({1, 2, 3});
  held.pop_back();
  Fill({1, 4});
  EXPECT_EQ(cache_->Evict(10), 2);
  EXPECT_FALSE(cache_->Has(Name(3)));
  EXPECT_FALSE(cache_->Has(Name(4)));
  EXPECT_EQ(Hit({1, 2}), 2);
  held.clear();
  EXPECT_EQ(cache_->Evict(10), 2);
}

TEST_F(PrefixCacheTest, AmongEqualsTheLeafUsedLongestAgoGoes) {
  Start(8, 8);
  Fill({1});
  Fill({2});
  Fill({3});
  EXPECT_EQ(Hit({1}), 1);  // used again
  cache_->Evict(1);
  EXPECT_FALSE(cache_->Has(Name(2)));
  cache_->Evict(1);
  EXPECT_FALSE(cache_->Has(Name(3)));
  EXPECT_TRUE(cache_->Has(Name(1)));
}

TEST_F(PrefixCacheTest, PicturesOutliveTextOfTheSameAgeButNotForEver) {
  Start(4, 4);
  Fill({1}, kRows);
  Fill({2});
  Fill({3});
  Fill({4});
  EXPECT_EQ(cache_->Evict(3), 3);
  EXPECT_TRUE(cache_->Has(Name(1)));
  int text = 10;
  while (cache_->Has(Name(1)) && text < 20) {
    Fill({text++});
    if (pool_->free() == 0) cache_->Evict(1);
  }
  EXPECT_LT(text, 20) << "a picture that nobody asks for goes in the end";
}

TEST_F(PrefixCacheTest, AtTheCapTheLeastValuableGivesItsPlace) {
  Start(8, 3);
  Fill({1});
  Fill({2});
  Fill({3});
  Fill({4});
  EXPECT_EQ(cache_->blocks(), 3);
  EXPECT_FALSE(cache_->Has(Name(1)));
  EXPECT_TRUE(cache_->Has(Name(4)));
  EXPECT_EQ(pool_->used(), 3);
}

TEST_F(PrefixCacheTest, AtTheCapWithEverythingInUseNothingIsKept) {
  Start(8, 2);
  const std::vector<Block> held = Fill({1, 2});
  std::vector<Block> more;
  ASSERT_TRUE(pool_->Take(1, more));
  const int32_t id = more[0].id();
  EXPECT_FALSE(cache_->Insert(Name(3), held[1].id(), kText, more[0]));
  EXPECT_EQ(more[0].id(), id);
  EXPECT_EQ(pool_->references(id), 1);
  EXPECT_EQ(cache_->blocks(), 2);
}

TEST_F(PrefixCacheTest, ACapOfZeroKeepsNothing) {
  Start(4, 0);
  std::vector<Block> blocks;
  ASSERT_TRUE(pool_->Take(1, blocks));
  EXPECT_FALSE(cache_->Insert(Name(1), -1, kText, blocks[0]));
  EXPECT_EQ(Hit({1}), 0);
}

TEST_F(PrefixCacheTest, ATwinIsGivenBackForTheOneThatIsHere) {
  Start(4, 4);
  const std::vector<Block> first = Fill({1});
  std::vector<Block> second;
  ASSERT_TRUE(pool_->Take(1, second));
  EXPECT_EQ(pool_->free(), 2);
  EXPECT_TRUE(cache_->Insert(Name(1), -1, kText, second[0]));
  EXPECT_EQ(second[0].id(), first[0].id());
  EXPECT_EQ(pool_->free(), 3);
  EXPECT_EQ(cache_->blocks(), 1);
  // The same block again is no news.
  EXPECT_TRUE(cache_->Insert(Name(1), -1, kText, second[0]));
  EXPECT_EQ(pool_->references(first[0].id()), 3);
}

TEST_F(PrefixCacheTest, AnEvictedBlockUnderANewNameIsNotFoundUnderItsOldOne) {
  Start(1, 1);
  for (int name = 1; name < 9; ++name) {
    if (pool_->free() == 0) cache_->Evict(1);
    Fill({name});
    EXPECT_EQ(Hit({name}), 1);
    for (int old = 1; old < name; ++old) EXPECT_EQ(Hit({old}), 0);
  }
}

TEST_F(PrefixCacheTest, ANodeWithoutChildrenLeftIsALeafAgain) {
  Start(8, 8);
  Fill({1, 2});
  Fill({1, 3});
  Fill({5});
  EXPECT_EQ(Hit({5}), 1);
  EXPECT_EQ(cache_->Evict(2), 2);  // 2 and 3
  EXPECT_EQ(Hit({1, 2}), 1);
  EXPECT_EQ(cache_->Evict(1), 1);
  EXPECT_EQ(Hit({5}), 0) << "1 was used after it";
  EXPECT_EQ(Hit({1}), 1);
}

TEST_F(PrefixCacheTest, AheadWorkIsCountedAsUsedOnceOrAsWasted) {
  Start(8, 8);
  Fill({1, 2, 3}, kAhead);
  std::vector<Block> blocks;
  cache_->Extend(Names({1, 2}), 2, blocks);
  EXPECT_EQ(cache_->ahead_used_tokens(), 0) << "a pin is no use yet";
  EXPECT_EQ(cache_->Use(blocks), 8);
  EXPECT_EQ(cache_->Use(blocks), 0);
  EXPECT_EQ(cache_->ahead_used_tokens(), 8);
  blocks.clear();
  cache_->Evict(8);
  EXPECT_EQ(cache_->ahead_wasted_tokens(), 4);
  EXPECT_EQ(cache_->evicted_tokens(), 12);
}

TEST_F(PrefixCacheTest, UseOfABlockThatIsNotHereIsPassedOver) {
  Start(2, 2);
  std::vector<Block> blocks;
  ASSERT_TRUE(pool_->Take(1, blocks));
  EXPECT_EQ(cache_->Use(blocks), 0);
}

TEST_F(PrefixCacheTest, DyingGivesEveryBlockBack) {
  Start(4, 4);
  Fill({1, 2, 3});
  cache_.reset();
  EXPECT_EQ(pool_->free(), 4);
  EXPECT_EQ(pool_->idle(), 0);
}

TEST_F(PrefixCacheTest, NothingIsAllocatedAfterConstruction) {
  Start(8, 6);
  std::vector<Block> blocks;
  blocks.reserve(8);
  const std::vector<BlockHash> chain = Names({1, 2, 3, 4, 5, 6, 7, 8});
  const size_t before = testing::AllocationCount();
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 8; ++i) {
      if (pool_->free() == 0) cache_->Evict(1);
      if (!pool_->Take(1, blocks)) break;
      const int32_t parent = blocks.size() > 1 ? blocks[blocks.size() - 2].id() : -1;
      if (!cache_->Insert(chain[(i + round) % 8], parent, kText, blocks.back())) break;
    }
    blocks.clear();
    cache_->Extend(chain, 8, blocks);
    cache_->Use(blocks);
    blocks.clear();
    cache_->Evict(round % 9);
  }
  EXPECT_EQ(testing::AllocationCount(), before);
}

}  // namespace
}  // namespace tessera::decode
