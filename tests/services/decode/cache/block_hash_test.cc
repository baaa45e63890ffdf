#include "services/decode/cache/block_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/support/fake_key.h"

namespace tessera::decode {
namespace {

using testing::FakeKey;

constexpr int32_t kBlock = 4;

class BlockHasherTest : public ::testing::Test {
 protected:
  BlockHash Root(absl::string_view tenant, int32_t adapter, absl::string_view pruning,
                 int32_t rotary_length) {
    ChainRoot root;
    root.tenant = tenant;
    root.adapter = adapter;
    root.pruning = pruning;
    root.rotary_length = rotary_length;
    return hasher_.Root(root);
  }
  std::vector<BlockHash> Chain(const std::vector<int32_t>& ids,
                               const std::vector<PromptPicture>& pictures = {}) {
    return hasher_.Chain(hasher_.Root({}), ids, pictures);
  }

  BlockHasher hasher_{kBlock};
};

// `rows` rows of a picture behind `before` tokens of text, `after` behind them.
std::vector<int32_t> Prompt(int before, int rows, int after) {
  std::vector<int32_t> ids;
  for (int i = 0; i < before; ++i) ids.push_back(10 + i);
  ids.insert(ids.end(), rows, -1);
  for (int i = 0; i < after; ++i) ids.push_back(30 + i);
  return ids;
}

TEST_F(BlockHasherTest, EachFieldOfTheRootMakesAnotherRoot) {
  const std::set<BlockHash> roots = {
      Root("", 0, "", 0),   Root("a", 0, "", 0),    Root("b", 0, "", 0),
      Root("a", 1, "", 0),  Root("a", 0, "p", 0),   Root("ap", 0, "", 0),
      Root("", 0, "ap", 0), Root("a", 0, "", 4097), Root("a", 0, "", 4098)};
  EXPECT_EQ(roots.size(), 9u);
  EXPECT_EQ(Root("a", 1, "p", 5), Root("a", 1, "p", 5));
}

TEST_F(BlockHasherTest, TheRootIsInEveryNameOfItsChain) {
  const std::vector<int32_t> ids = Prompt(12, 0, 0);
  const std::vector<BlockHash> a = hasher_.Chain(Root("a", 0, "", 0), ids, {});
  const std::vector<BlockHash> b = hasher_.Chain(Root("b", 0, "", 0), ids, {});
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(a[i], b[i]);
}

TEST_F(BlockHasherTest, OnlyFullBlocksHaveNames) {
  for (const int tokens : {0, 1, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock}) {
    EXPECT_EQ(Chain(Prompt(tokens, 0, 0)).size(), static_cast<size_t>(tokens / kBlock)) << tokens;
  }
}

TEST_F(BlockHasherTest, AnIdChangesTheNameOfItsBlockAndOfAllBehindIt) {
  const std::vector<int32_t> ids = Prompt(16, 0, 0);
  const std::vector<BlockHash> names = Chain(ids);
  for (size_t place = 0; place < ids.size(); ++place) {
    std::vector<int32_t> other = ids;
    other[place] += 256;
    const std::vector<BlockHash> changed = Chain(other);
    for (size_t block = 0; block < names.size(); ++block) {
      EXPECT_EQ(names[block] == changed[block], block < place / kBlock) << place << " " << block;
    }
  }
}

TEST_F(BlockHasherTest, EqualBlocksAtOtherPlacesHaveOtherNames) {
  const std::vector<BlockHash> names = Chain({7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7});
  EXPECT_EQ(std::set<BlockHash>(names.begin(), names.end()).size(), 3u);
}

TEST_F(BlockHasherTest, TwoPicturesNeverShareABlockAndKeepTheTextInFrontOfThem) {
  for (int before = 0; before <= 9; ++before) {
    for (int rows = 1; rows <= 9; ++rows) {
      const std::vector<int32_t> ids = Prompt(before, rows, 20 - before - rows);
      const std::vector<BlockHash> a = Chain(ids, {{FakeKey(1), before, rows}});
      const std::vector<BlockHash> b = Chain(ids, {{FakeKey(2), before, rows}});
      for (int block = 0; block < 5; ++block) {
        EXPECT_EQ(a[block] == b[block], block < before / kBlock) << before << " " << rows;
      }
    }
  }
}

TEST_F(BlockHasherTest, ABlockOfTextNextToAPictureDoesNotNameIt) {
  // The picture fills block 1 exactly: blocks 0 and 2 know it by their parents only.
  const std::vector<PromptPicture> a = {{FakeKey(1), 4, 4}};
  const std::vector<PromptPicture> b = {{FakeKey(2), 4, 4}};
  const std::vector<int32_t> text = {1, 2, 3, 4};
  const BlockHash parent = hasher_.Root({});
  EXPECT_EQ(hasher_.Next(parent, 0, text, a), hasher_.Next(parent, 0, text, b));
  EXPECT_EQ(hasher_.Next(parent, 2, text, a), hasher_.Next(parent, 2, text, {}));
  const std::vector<int32_t> rows = {-1, -1, -1, -1};
  EXPECT_NE(hasher_.Next(parent, 1, rows, a), hasher_.Next(parent, 1, rows, b));
}

TEST_F(BlockHasherTest, TheNumbersOfTheRowsAreInTheName) {
  const BlockHash parent = hasher_.Root({});
  const std::vector<int32_t> rows = {-1, -1, -1, -1};
  std::set<BlockHash> names;
  for (int first = 0; first <= 4; ++first) {  // rows 4..7, 3..6, ..., 0..3
    names.insert(hasher_.Next(parent, 1, rows, std::vector<PromptPicture>{{FakeKey(1), first, 9}}));
  }
  EXPECT_EQ(names.size(), 5u);
}

TEST_F(BlockHasherTest, WhereOnePictureEndsAndTheNextBeginsIsInTheName) {
  const BlockHash parent = hasher_.Root({});
  const std::vector<int32_t> rows = {-1, -1, -1, -1};
  std::set<BlockHash> names;
  for (int cut = 1; cut <= 3; ++cut) {
    for (const auto& [a, b] : {std::pair(1, 2), std::pair(2, 1), std::pair(1, 1)}) {
      const std::vector<PromptPicture> pictures = {{FakeKey(a), 0, cut},
                                                   {FakeKey(b), cut, 4 - cut}};
      names.insert(hasher_.Next(parent, 0, rows, pictures));
    }
  }
  EXPECT_EQ(names.size(), 9u);
}

TEST_F(BlockHasherTest, ThePlaceOfARowInItsBlockIsInTheName) {
  std::set<BlockHash> names;
  for (int place = 0; place < kBlock; ++place) {
    std::vector<int32_t> ids = {5, 5, 5, 5};
    ids[place] = -1;
    names.insert(Chain(ids, {{FakeKey(1), place, 1}})[0]);
  }
  EXPECT_EQ(names.size(), 4u);
}

TEST_F(BlockHasherTest, ASecondPictureKeepsTheNamesUpToItself) {
  std::vector<int32_t> ids = Prompt(3, 5, 4);  // 12 tokens
  const std::vector<BlockHash> one = Chain(ids, {{FakeKey(1), 3, 5}});
  ids.insert(ids.end(), 4, -1);
  const std::vector<BlockHash> two = Chain(ids, {{FakeKey(1), 3, 5}, {FakeKey(2), 12, 4}});
  ASSERT_EQ(two.size(), 4u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(one[i], two[i]);
}

TEST_F(BlockHasherTest, AChainGoesOnBlockByBlock) {
  const std::vector<int32_t> ids = Prompt(5, 6, 5);
  const std::vector<PromptPicture> pictures = {{FakeKey(3), 5, 6}};
  const std::vector<BlockHash> names = Chain(ids, pictures);
  BlockHash parent = hasher_.Root({});
  for (int32_t block = 0; block < 4; ++block) {
    parent = hasher_.Next(parent, block, absl::MakeConstSpan(ids).subspan(block * kBlock, kBlock),
                          pictures);
    EXPECT_EQ(parent, names[block]);
  }
}

}  // namespace
}  // namespace tessera::decode
