#include "services/decode/cache/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace tessera::decode {
namespace {

TEST(BlockPoolTest, FreeingTheLastReferenceReturnsTheBlock) {
  BlockPool pool(3, 16);
  std::vector<Block> blocks;
  ASSERT_TRUE(pool.Take(2, blocks));
  EXPECT_EQ(pool.free(), 1);
  Block shared = blocks[0];
  EXPECT_EQ(pool.references(shared.id()), 2);
  blocks.clear();
  EXPECT_EQ(pool.free(), 2);
  shared.Reset();
  EXPECT_TRUE(shared.empty());
  EXPECT_EQ(pool.free(), 3);
}

TEST(BlockPoolTest, TakingMoreThanThereIsTakesNothing) {
  BlockPool pool(3, 16);
  std::vector<Block> blocks;
  EXPECT_FALSE(pool.Take(4, blocks));
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ(pool.free(), 3);
  EXPECT_TRUE(pool.Take(3, blocks));
  EXPECT_FALSE(pool.Take(1, blocks));
  EXPECT_TRUE(pool.Take(0, blocks));
}

TEST(BlockPoolTest, BlocksForCountsThePartOfABlockAsOne) {
  for (const int32_t size : {1, 4, 16}) {
    BlockPool pool(8, size);
    EXPECT_EQ(pool.BlocksFor(0), 0);
    EXPECT_EQ(pool.BlocksFor(1), 1);
    EXPECT_EQ(pool.BlocksFor(size), 1);
    EXPECT_EQ(pool.BlocksFor(size + 1), 2);
    EXPECT_EQ(pool.BlocksFor(2 * size), 2);
    if (size > 1) {
      EXPECT_EQ(pool.BlocksFor(size - 1), 1);
    }
  }
}

TEST(BlockPoolTest, AnyOrderOfSharingAndFreeingBringsEveryBlockBack) {
  constexpr int32_t kSize = 16;
  std::vector<int> order = {0, 1, 2, 3, 4, 5};
  do {
    BlockPool pool(32, kSize);
    // Lengths around the borders of a block, each held twice.
    std::vector<std::vector<Block>> held;
    for (const int tokens : {kSize - 1, kSize, kSize + 1}) {
      std::vector<Block> blocks;
      ASSERT_TRUE(pool.Take(pool.BlocksFor(tokens), blocks));
      held.push_back(blocks);
      held.push_back(std::move(blocks));
    }
    ASSERT_EQ(pool.used(), 4);
    for (const int i : order) held[i].clear();
    ASSERT_EQ(pool.free(), 32);
    for (int32_t block = 0; block < 32; ++block) ASSERT_EQ(pool.references(block), 0);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(BlockPoolTest, MovingAndAssigningKeepCounts) {
  BlockPool pool(2, 16);
  std::vector<Block> blocks;
  ASSERT_TRUE(pool.Take(2, blocks));
  Block moved = std::move(blocks[0]);
  EXPECT_EQ(pool.references(moved.id()), 1);
  Block& self = moved;
  moved = self;
  EXPECT_EQ(pool.references(moved.id()), 1);
  moved = blocks[1];
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.references(moved.id()), 2);
  moved = Block();
  blocks.clear();
  EXPECT_EQ(pool.free(), 2);
}

TEST(BlockPoolTest, ABlockIsIdleWhileOnlyTheCacheHoldsIt) {
  BlockPool pool(3, 16);
  std::vector<Block> blocks;
  ASSERT_TRUE(pool.Take(2, blocks));
  Block cached = blocks[0];
  pool.SetCached(cached.id(), true);
  EXPECT_EQ(pool.idle(), 0);
  blocks.clear();  // the other one is free at once
  EXPECT_EQ(pool.idle(), 1);
  EXPECT_EQ(pool.free(), 2);
  EXPECT_EQ(pool.used(), 1);
  Block user = cached;
  Block second = cached;
  EXPECT_EQ(pool.idle(), 0);
  user.Reset();
  EXPECT_EQ(pool.idle(), 0);
  second.Reset();
  EXPECT_EQ(pool.idle(), 1);
  pool.SetCached(cached.id(), true);  // twice says no more than once
  EXPECT_EQ(pool.idle(), 1);
  pool.SetCached(cached.id(), false);
  EXPECT_EQ(pool.idle(), 0);
  cached.Reset();
  EXPECT_EQ(pool.free(), 3);
}

TEST(BlockPoolTest, SayingThatAnIdleBlockIsCachedCountsItAtOnce) {
  BlockPool pool(1, 16);
  std::vector<Block> blocks;
  ASSERT_TRUE(pool.Take(1, blocks));
  pool.SetCached(0, true);
  EXPECT_EQ(pool.idle(), 1);
  pool.SetCached(0, false);
  EXPECT_EQ(pool.idle(), 0);
}

TEST(BlockPoolTest, RandomUseAgreesWithAnObviousModel) {
  std::mt19937 random(3);
  BlockPool pool(24, 16);
  std::vector<Block> held;
  std::vector<int> counts(24, 0);
  std::vector<bool> cached(24, false);
  for (int operation = 0; operation < 100'000; ++operation) {
    const int which = static_cast<int>(random() % 4);
    if (which == 0) {
      const int32_t count = static_cast<int32_t>(random() % 4);
      const auto unused = std::count(counts.begin(), counts.end(), 0);
      const size_t before = held.size();
      ASSERT_EQ(pool.Take(count, held), count <= unused);
      for (size_t i = before; i < held.size(); ++i) {
        ASSERT_EQ(counts[held[i].id()], 0) << "a block in use was given out";
        ++counts[held[i].id()];
      }
    } else if (!held.empty()) {
      const size_t at = random() % held.size();
      if (which == 3) {
        cached[held[at].id()] = true;
        pool.SetCached(held[at].id(), true);
      } else if (which == 1) {
        Block copy = held[at];
        ++counts[copy.id()];
        held.push_back(std::move(copy));
      } else if (counts[held[at].id()] == 1 && cached[held[at].id()]) {
        cached[held[at].id()] = false;
        pool.SetCached(held[at].id(), false);
      } else {
        --counts[held[at].id()];
        std::swap(held[at], held.back());
        held.pop_back();
      }
    }
    ASSERT_EQ(pool.free(), std::count(counts.begin(), counts.end(), 0));
    int32_t idle = 0;
    for (int32_t block = 0; block < 24; ++block) idle += counts[block] == 1 && cached[block];
    ASSERT_EQ(pool.idle(), idle);
  }
  for (int32_t block = 0; block < 24; ++block) {
    if (cached[block]) pool.SetCached(block, false);
  }
  held.clear();
  EXPECT_EQ(pool.free(), 24);
}

TEST(BlockPoolDeathTest, APoolThatDiesBeforeItsBlocksAborts) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        std::vector<Block> blocks;
        BlockPool pool(2, 16);
        pool.Take(1, blocks);
      },
      "free");
}

}  // namespace
}  // namespace tessera::decode
