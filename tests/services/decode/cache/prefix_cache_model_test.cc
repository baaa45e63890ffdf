// The prefix cache against an obvious model: a list, looked through from end to end.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "services/decode/cache/prefix_cache.h"

namespace tessera::decode {
namespace {

constexpr int32_t kBlockSize = 4;
constexpr int kBranches = 3;
constexpr int kMostDepth = 6;
#ifdef TESSERA_SANITIZED
constexpr int kHistories = 20;
#else
constexpr int kHistories = 1000;
#endif

// Paths in a tree of names: the number of a path is its name.
using Path = std::vector<int>;

BlockHash NameOf(const Path& path, size_t blocks) {
  uint32_t number = 0;
  for (size_t i = 0; i < blocks; ++i) number = number * (kBranches + 1) + path[i] + 1;
  BlockHash name{};
  name[0] = static_cast<uint8_t>(number % 5);  // few buckets
  for (int byte = 0; byte < 4; ++byte) name[10 + byte] = static_cast<uint8_t>(number >> 8 * byte);
  return name;
}

// The tokens of the last block of a path, of which branches share the first ones.
std::vector<int32_t> IdsOf(int step) { return {1, step / 2, step, 9}; }

struct Known {
  BlockHash hash{};
  int32_t block = 0;
  int32_t parent = -1;  // block
  BlockContent content;
  uint64_t value = 0;
  uint64_t last_use = 0;
  std::vector<int32_t> ids;
  bool found = true;  // not so once it was forgotten
};

// What prefix_cache.h says, word for word.
class Model {
 public:
  Model(int32_t max_blocks, const BlockPool& pool) : max_blocks_(max_blocks), pool_(pool) {}

  Known* Find(const BlockHash& hash) {
    const auto it = std::find_if(list_.begin(), list_.end(), [&](const Known& known) {
      return known.found && known.hash == hash;
    });
    return it == list_.end() ? nullptr : &*it;
  }
  Known* At(int32_t block) {
    const auto it = std::find_if(list_.begin(), list_.end(),
                                 [&](const Known& known) { return known.block == block; });
    return it == list_.end() ? nullptr : &*it;
  }
  void Mark(Known& known) {
    if (!known.found) return;
    known.value = level_ + (known.content.tokens.rows > 0 ? 2 : 1);
    known.last_use = ++uses_;
  }
  // The leaf that goes next, if any may.
  Known* Next() {
    Known* next = nullptr;
    for (Known& known : list_) {
      const bool leaf = std::none_of(list_.begin(), list_.end(), [&](const Known& other) {
        return other.parent == known.block;
      });
      if (!leaf || pool_.references(known.block) > 1) continue;
      if (next == nullptr ||
          std::pair(known.value, known.last_use) < std::pair(next->value, next->last_use)) {
        next = &known;
      }
    }
    return next;
  }
  // Before the cache does it: who goes, and how many.
  int32_t Evict(int32_t count) {
    int32_t freed = 0;
    for (Known* known = Next(); known != nullptr && freed < count; known = Next()) {
      level_ = std::max(level_, known->value);
      const int64_t tokens = static_cast<int64_t>(known->ids.size());
      evicted += tokens;
      if (known->content.ahead) wasted += tokens;
      list_.erase(list_.begin() + (known - list_.data()));
      ++freed;
      if (freed == count) break;
    }
    return freed;
  }
  // With all that stands behind it.
  void Forget(Known& known) {
    known.found = false;
    known.value = 0;
    for (Known& other : list_) {
      if (other.parent == known.block && other.found) Forget(other);
    }
  }
  // The child with most of the wanted tokens, the latest among equals; and how many.
  std::pair<Known*, int32_t> Continue(int32_t parent, const std::vector<int32_t>& wanted) {
    std::pair<Known*, int32_t> best = {nullptr, 0};
    for (auto known = list_.rbegin(); known != list_.rend(); ++known) {
      if (known->parent != parent || !known->found) continue;
      const auto end =
          std::mismatch(known->ids.begin(), known->ids.end(), wanted.begin(), wanted.end());
      const int32_t common = static_cast<int32_t>(end.second - wanted.begin());
      if (common > best.second) best = {&*known, common};
    }
    return best;
  }
  // Whether there is a place for one more, made if need be.
  bool MakePlace() {
    if (static_cast<int32_t>(list_.size()) < max_blocks_) return true;
    return max_blocks_ > 0 && Evict(1) == 1;
  }
  void Add(const Known& known) {
    list_.push_back(known);
    Mark(list_.back());
  }

  const std::vector<Known>& list() const { return list_; }
  int64_t evicted = 0;
  int64_t wasted = 0;
  int64_t used = 0;

 private:
  const int32_t max_blocks_;
  const BlockPool& pool_;
  std::vector<Known> list_;
  uint64_t level_ = 0;
  uint64_t uses_ = 0;
};

class PrefixCacheModel {
 public:
  explicit PrefixCacheModel(uint32_t seed)
      : random_(seed),
        pool_(3 + Below(20), kBlockSize),
        cap_(Below(pool_.total() + 2)),
        cache_(cap_, pool_),
        model_(std::min(cap_, pool_.total()), pool_) {}

  void Operate() {
    switch (Below(11)) {
      case 0:
      case 1:
        return Compute();
      case 2:
        return Release();
      case 3:
        return Evict();
      case 4:
        return Use();
      case 5:
        return KeepTail();
      case 6:
        return Continue();
      case 7:
        return Forget();
      case 8:
        return Rematch();
      case 9:
        return ComputeBehindHeld();
      default:
        return Lookup();
    }
  }

  void Check() {
    ASSERT_EQ(cache_.blocks(), static_cast<int32_t>(model_.list().size()));
    for (const Known& known : model_.list()) {
      ASSERT_EQ(cache_.Has(known.hash), model_.Find(known.hash) != nullptr);
    }
    ASSERT_EQ(cache_.evicted_tokens(), model_.evicted);
    ASSERT_EQ(cache_.ahead_used_tokens(), model_.used);
    ASSERT_EQ(cache_.ahead_wasted_tokens(), model_.wasted);
    int32_t idle = 0;
    for (const Known& known : model_.list()) idle += pool_.references(known.block) == 1;
    ASSERT_EQ(pool_.idle(), idle);
  }

 private:
  struct Held {
    Path path;
    std::vector<Block> blocks;
  };

  int Below(int n) { return static_cast<int>(random_() % n); }

  Path MakePath() {
    Path path(1 + Below(kMostDepth));
    for (int& step : path) step = Below(3) == 0 ? Below(kBranches) : 0;
    return path;
  }
  std::vector<BlockHash> ChainOf(const Path& path) {
    std::vector<BlockHash> chain;
    for (size_t i = 1; i <= path.size(); ++i) chain.push_back(NameOf(path, i));
    return chain;
  }

  // Pins what is here of a path, as the model says.
  Held Find() {
    Held held{MakePath(), {}};
    Extend(held);
    return held;
  }
  void Extend(Held& held) {
    const std::vector<BlockHash> chain = ChainOf(held.path);
    const int32_t limit = Below(kMostDepth + 2);
    size_t expected = 0;
    while (expected < held.blocks.size() && model_.At(held.blocks[expected].id())->found) {
      ++expected;
    }
    cache_.Extend(chain, limit, held.blocks);
    while (expected < chain.size() && static_cast<int32_t>(expected) < limit) {
      Known* known = model_.Find(chain[expected]);
      if (known == nullptr) break;
      EXPECT_EQ(held.blocks.at(expected).id(), known->block);
      model_.Mark(*known);
      ++expected;
    }
    EXPECT_EQ(held.blocks.size(), expected);
  }
  // Somebody waits with what is pinned, and looks for more.
  void Rematch() {
    if (!held_.empty()) Extend(held_[random_() % held_.size()]);
  }
  // What somebody holds and has computed is not to be trusted.
  void Forget() {
    if (held_.empty() || Below(3) > 0) return;
    const Held& held = held_[random_() % held_.size()];
    const size_t sound = random_() % (held.blocks.size() + 1);
    const auto blocks = absl::MakeConstSpan(held.blocks).subspan(sound);
    for (const Block& block : blocks) {
      Known* known = model_.At(block.id());
      if (known->found) model_.Forget(*known);
    }
    cache_.Forget(blocks);
  }
  void Lookup() { Keep(Find()); }
  void Keep(Held held) {
    if (Below(2) == 0 && !held.blocks.empty()) held_.push_back(std::move(held));
  }

  // Computes some blocks behind what is found and puts them in, twins among them.
  void Compute() {
    Held held = Find();
    ComputeBehind(held);
    Keep(std::move(held));
  }
  // The same of one that has waited meanwhile: what it holds may be forgotten by now.
  void ComputeBehindHeld() {
    if (!held_.empty()) ComputeBehind(held_[random_() % held_.size()]);
  }
  void ComputeBehind(Held& held) {
    const std::vector<BlockHash> chain = ChainOf(held.path);
    for (size_t i = held.blocks.size(); i < chain.size(); ++i) {
      if (!pool_.Take(1, held.blocks)) break;
      const std::vector<int32_t> ids = IdsOf(held.path[i]);
      BlockContent content;
      content.tokens.ids = ids;
      content.tokens.rows = Below(3) == 0 ? kBlockSize : 0;
      content.ahead = Below(4) == 0;
      const int32_t parent = i == 0 ? -1 : held.blocks[i - 1].id();
      const int32_t block = held.blocks[i].id();
      Known* twin = model_.Find(chain[i]);
      bool kept = parent < 0 || model_.At(parent)->found;
      if (kept && twin != nullptr) {
        model_.Mark(*twin);
      } else if (kept && (kept = model_.MakePlace())) {
        model_.Add({chain[i], block, parent, content, 0, 0, ids});
      }
      ASSERT_EQ(cache_.Insert(chain[i], parent, content, held.blocks[i]), kept);
      if (!kept) {
        held.blocks.resize(i);  // it would be nobody's
        break;
      }
      ASSERT_EQ(held.blocks[i].id(), model_.Find(chain[i])->block);
    }
  }

  // A block that is not full goes in as a leaf.
  void KeepTail() {
    Held held = Find();
    std::vector<Block> tail;
    if (held.blocks.empty() || !pool_.Take(1, tail)) return;
    std::vector<int32_t> ids = IdsOf(Below(kBranches));
    ids.resize(1 + Below(kBlockSize - 1));
    BlockHash name = NameOf(held.path, held.blocks.size());
    name[30] = static_cast<uint8_t>(ids.size());
    name[31] = static_cast<uint8_t>(10 * ids[1 % ids.size()] + ids.back());
    BlockContent content;
    content.tokens.ids = ids;
    content.ahead = Below(4) == 0;
    const int32_t parent = held.blocks.back().id();
    Known* twin = model_.Find(name);
    bool kept = true;
    if (twin != nullptr) {
      model_.Mark(*twin);
    } else if (kept = model_.MakePlace(); kept) {
      model_.Add({name, tail[0].id(), parent, content, 0, 0, ids});
    }
    ASSERT_EQ(cache_.Insert(name, parent, content, tail[0]), kept);
  }

  void Continue() {
    const Held held = Find();
    if (held.blocks.empty()) return;
    std::vector<int32_t> wanted = IdsOf(Below(kBranches));
    wanted.resize(Below(kBlockSize + 1));
    BlockTokens tokens;
    tokens.ids = wanted;
    const auto [known, common] = model_.Continue(held.blocks.back().id(), wanted);
    const Branch branch = cache_.Continue(held.blocks.back().id(), tokens);
    ASSERT_EQ(branch.tokens, common);
    ASSERT_EQ(branch.block.id(), known == nullptr ? -1 : known->block);
    if (known != nullptr) model_.Mark(*known);
    if (Below(2) == 0 && known != nullptr) branches_.emplace_back(held.blocks, branch);
    if (branches_.size() > 3) branches_.erase(branches_.begin());
  }

  void Release() {
    if (held_.empty()) return;
    const size_t at = random_() % held_.size();
    if (Below(3) == 0 && !held_[at].blocks.empty()) {
      held_[at].blocks.pop_back();
      if (!held_[at].blocks.empty()) return;
    }
    held_.erase(held_.begin() + static_cast<int64_t>(at));
  }

  void Evict() {
    // Whatever is idle can be given back: who plans with it relies on that.
    const int32_t count = Below(6) == 0 ? pool_.idle() : Below(4);
    const int32_t idle = pool_.idle();
    const int32_t expected = model_.Evict(count);
    const int32_t free = pool_.free();
    ASSERT_EQ(expected, std::min(count, idle));
    ASSERT_EQ(cache_.Evict(count), expected);
    ASSERT_EQ(pool_.free(), free + expected);
  }

  void Use() {
    if (held_.empty()) return;
    const Held& held = held_[random_() % held_.size()];
    int32_t expected = 0;
    for (const Block& block : held.blocks) {
      Known* known = model_.At(block.id());
      if (known == nullptr) continue;
      model_.Mark(*known);
      if (known->content.ahead) expected += static_cast<int32_t>(known->ids.size());
      known->content.ahead = false;
    }
    model_.used += expected;
    ASSERT_EQ(cache_.Use(held.blocks), expected);
  }

  std::mt19937 random_;
  BlockPool pool_;
  const int32_t cap_;
  PrefixCache cache_;
  Model model_;
  std::vector<Held> held_;
  std::vector<std::pair<std::vector<Block>, Branch>> branches_;  // with what stands in front
};

TEST(PrefixCacheModelTest, RandomOperationsAgreeWithAnObviousModel) {
  for (uint32_t seed = 0; seed < kHistories; ++seed) {
    SCOPED_TRACE(seed);
    PrefixCacheModel model(seed);
    for (int operation = 0; operation < 1000; ++operation) {
      model.Operate();
      ASSERT_NO_FATAL_FAILURE(model.Check());
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tessera::decode
