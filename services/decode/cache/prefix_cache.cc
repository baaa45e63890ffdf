#include "services/decode/cache/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace tessera::decode {
namespace {

// What a block costs to compute again, in levels: those of pictures stay one turnover of the cache
// longer.
constexpr uint64_t kTextCost = 1;
constexpr uint64_t kPictureCost = 2;

constexpr int kMostBranches = 64;

// Whether token `i` of both is the same: an id, or the same row of the same picture.
bool SameToken(const BlockTokens& a, const BlockTokens& b, int32_t i) {
  if (a.ids[i] != b.ids[i]) return false;
  if (a.ids[i] >= 0) return true;
  const auto within = [i](const BlockTokens& tokens) {
    return i >= tokens.place && i < tokens.place + tokens.rows;
  };
  return within(a) && within(b) && a.picture == b.picture &&
         a.first_row - a.place == b.first_row - b.place;
}

int32_t CommonTokens(const BlockTokens& a, const BlockTokens& b) {
  const int32_t most = static_cast<int32_t>(std::min(a.ids.size(), b.ids.size()));
  int32_t common = 0;
  while (common < most && SameToken(a, b, common)) ++common;
  return common;
}

}  // namespace

PrefixCache::PrefixCache(int32_t max_blocks, BlockPool& pool)
    : max_blocks_(std::min(max_blocks, pool.total())), pool_(pool), nodes_(pool.total()) {
  CHECK_GE(max_blocks, 0);
  buckets_.assign(std::bit_ceil(2 * static_cast<uint32_t>(pool.total())), -1);
  ids_.resize(nodes_.size() * pool.block_size());
  heap_.reserve(nodes_.size());
  scratch_.reserve(nodes_.size());
}

PrefixCache::~PrefixCache() {
  for (Node& node : nodes_) {
    if (!node.block.empty()) pool_.SetCached(node.block.id(), false);
    node.block.Reset();
  }
}

size_t PrefixCache::BucketOf(const BlockHash& hash) const {
  uint64_t word = 0;
  std::memcpy(&word, hash.data(), sizeof(word));
  return word & (buckets_.size() - 1);
}

int32_t PrefixCache::Find(const BlockHash& hash) const {
  int32_t id = buckets_[BucketOf(hash)];
  while (id >= 0 && nodes_[id].hash != hash) id = nodes_[id].next;
  return id;
}

void PrefixCache::Extend(absl::Span<const BlockHash> chain, int32_t limit,
                         std::vector<Block>& blocks) {
  const auto forgotten = std::find_if(blocks.begin(), blocks.end(), [this](const Block& block) {
    return !nodes_[block.id()].found;
  });
  blocks.erase(forgotten, blocks.end());
  const size_t end = std::min<size_t>(chain.size(), std::max(limit, 0));
  while (blocks.size() < end) {
    const int32_t id = Find(chain[blocks.size()]);
    if (id < 0) return;
    blocks.push_back(nodes_[id].block);
    Mark(id);
  }
}

int32_t PrefixCache::Use(absl::Span<const Block> blocks) {
  int32_t ahead_tokens = 0;
  for (const Block& block : blocks) {
    Node& node = nodes_[block.id()];
    if (node.block.empty()) continue;
    Mark(block.id());
    if (node.ahead) ahead_tokens += static_cast<int32_t>(node.tokens.ids.size());
    node.ahead = false;
  }
  ahead_used_tokens_ += ahead_tokens;
  return ahead_tokens;
}

Branch PrefixCache::Continue(int32_t parent, const BlockTokens& wanted) {
  Branch branch;
  int32_t best = -1;
  int32_t child = nodes_[parent].first_child;
  for (int looked = 0; child >= 0 && looked < kMostBranches; ++looked) {
    const int32_t common = CommonTokens(nodes_[child].tokens, wanted);
    if (common > branch.tokens && nodes_[child].found) {
      branch.tokens = common;
      best = child;
    }
    child = nodes_[child].sibling_behind;
  }
  if (best < 0) return branch;
  branch.block = nodes_[best].block;
  Mark(best);
  return branch;
}

bool PrefixCache::Insert(const BlockHash& hash, int32_t parent, BlockContent content,
                         Block& block) {
  // First: behind a forgotten one a twin, which stands behind another, would be held without that.
  if (parent >= 0 && !nodes_[parent].found) return false;
  if (const int32_t twin = Find(hash); twin >= 0) {
    if (twin != block.id()) block = nodes_[twin].block;
    Mark(twin);
    return true;
  }
  if (!MakePlace()) return false;
  const int32_t id = block.id();
  Node& node = nodes_[id];
  CHECK(node.block.empty());
  node.block = block;
  pool_.SetCached(id, true);
  node.hash = hash;
  node.tokens = content.tokens;
  int32_t* ids = &ids_[static_cast<size_t>(id) * pool_.block_size()];
  std::copy(content.tokens.ids.begin(), content.tokens.ids.end(), ids);
  node.tokens.ids = absl::MakeConstSpan(ids, content.tokens.ids.size());
  node.ahead = content.ahead;
  int32_t& bucket = buckets_[BucketOf(hash)];
  node.next = std::exchange(bucket, id);
  node.found = true;
  Adopt(parent, id);
  HeapAdd(id);
  Mark(id);
  ++size_;
  return true;
}

void PrefixCache::Forget(absl::Span<const Block> blocks) {
  scratch_.clear();
  for (const Block& block : blocks) {
    if (nodes_[block.id()].found) scratch_.push_back(block.id());
  }
  while (!scratch_.empty()) {
    const int32_t id = scratch_.back();
    scratch_.pop_back();
    Node& node = nodes_[id];
    Unlink(id);
    node.value = 0;
    if (node.heap_at >= 0) HeapSift(static_cast<size_t>(node.heap_at));
    for (int32_t child = node.first_child; child >= 0; child = nodes_[child].sibling_behind) {
      if (nodes_[child].found) scratch_.push_back(child);
    }
  }
}

// Under the cap there is a place; at it, one must go.
bool PrefixCache::MakePlace() {
  if (size_ < max_blocks_) return true;
  return max_blocks_ > 0 && Evict(1) == 1;
}

int32_t PrefixCache::Evict(int32_t count) {
  int32_t freed = 0;
  scratch_.clear();
  while (freed < count && pool_.idle() > 0 && !heap_.empty()) {
    const int32_t id = heap_.front();
    if (pool_.references(id) > 1) {
      HeapRemove(id);
      scratch_.push_back(id);
      continue;
    }
    level_ = std::max(level_, nodes_[id].value);
    Remove(id);
    ++freed;
  }
  for (const int32_t id : scratch_) HeapAdd(id);
  return freed;
}

// Takes a leaf out of the tree.
void PrefixCache::Remove(int32_t id) {
  Node& node = nodes_[id];
  CHECK_EQ(node.first_child, -1);
  const int64_t tokens = static_cast<int64_t>(node.tokens.ids.size());
  evicted_tokens_ += tokens;
  if (node.ahead) ahead_wasted_tokens_ += tokens;
  HeapRemove(id);
  Unlink(id);
  Orphan(id);
  pool_.SetCached(id, false);
  node.block.Reset();
  --size_;
}

void PrefixCache::Unlink(int32_t id) {
  if (!std::exchange(nodes_[id].found, false)) return;
  int32_t* link = &buckets_[BucketOf(nodes_[id].hash)];
  while (*link != id) link = &nodes_[*link].next;
  *link = nodes_[id].next;
}

// Puts a new leaf behind its parent, which is none from now on.
void PrefixCache::Adopt(int32_t parent, int32_t id) {
  Node& node = nodes_[id];
  node.parent = parent;
  node.first_child = node.sibling_before = node.sibling_behind = -1;
  if (parent < 0) return;
  Node& above = nodes_[parent];
  CHECK(!above.block.empty());
  CHECK_EQ(above.tokens.ids.size(), static_cast<size_t>(pool_.block_size()));
  if (above.first_child < 0) {
    HeapRemove(parent);
  } else {
    nodes_[above.first_child].sibling_before = id;
  }
  node.sibling_behind = std::exchange(above.first_child, id);
}

// Takes a leaf from behind its parent, which may become one.
void PrefixCache::Orphan(int32_t id) {
  Node& node = nodes_[id];
  if (node.sibling_behind >= 0) nodes_[node.sibling_behind].sibling_before = node.sibling_before;
  if (node.sibling_before >= 0) {
    nodes_[node.sibling_before].sibling_behind = node.sibling_behind;
  } else if (node.parent >= 0) {
    nodes_[node.parent].first_child = node.sibling_behind;
    if (node.sibling_behind < 0) HeapAdd(node.parent);
  }
}

// Used now.
void PrefixCache::Mark(int32_t id) {
  Node& node = nodes_[id];
  if (!node.found) return;  // it goes first, whoever still uses it
  node.value = level_ + (node.tokens.rows > 0 ? kPictureCost : kTextCost);
  node.last_use = ++uses_;
  if (node.heap_at >= 0) HeapSift(static_cast<size_t>(node.heap_at));
}

// ------------------------------------------------------------------ heap

bool PrefixCache::Less(int32_t a, int32_t b) const {
  const Node& x = nodes_[a];
  const Node& y = nodes_[b];
  return x.value != y.value ? x.value < y.value : x.last_use < y.last_use;
}

void PrefixCache::HeapPlace(size_t at, int32_t id) {
  heap_[at] = id;
  nodes_[id].heap_at = static_cast<int32_t>(at);
}

void PrefixCache::HeapAdd(int32_t id) {
  heap_.push_back(id);
  nodes_[id].heap_at = static_cast<int32_t>(heap_.size()) - 1;
  HeapSift(heap_.size() - 1);
}

void PrefixCache::HeapRemove(int32_t id) {
  const size_t at = static_cast<size_t>(std::exchange(nodes_[id].heap_at, -1));
  const int32_t last = heap_.back();
  heap_.pop_back();
  if (last == id) return;
  HeapPlace(at, last);
  HeapSift(at);
}

// Moves what stands at `at` up or down to its place.
void PrefixCache::HeapSift(size_t at) {
  const int32_t id = heap_[at];
  while (at > 0 && Less(id, heap_[(at - 1) / 2])) {
    HeapPlace(at, heap_[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  while (2 * at + 1 < heap_.size()) {
    size_t child = 2 * at + 1;
    if (child + 1 < heap_.size() && Less(heap_[child + 1], heap_[child])) ++child;
    if (!Less(heap_[child], id)) break;
    HeapPlace(at, heap_[child]);
    at = child;
  }
  HeapPlace(at, id);
}

}  // namespace tessera::decode
