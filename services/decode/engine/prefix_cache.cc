#include "services/decode/engine/prefix_cache.h"

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

}  // namespace

PrefixCache::PrefixCache(int32_t max_blocks, BlockPool& pool)
    : max_blocks_(std::min(max_blocks, pool.total())), pool_(pool), nodes_(pool.total()) {
  CHECK_GE(max_blocks, 0);
  buckets_.assign(std::bit_ceil(2 * static_cast<uint32_t>(pool.total())), -1);
  heap_.reserve(nodes_.size());
  aside_.reserve(nodes_.size());
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
    if (node.content.ahead) ahead_tokens += pool_.block_size();
    node.content.ahead = false;
  }
  ahead_used_tokens_ += ahead_tokens;
  return ahead_tokens;
}

bool PrefixCache::Insert(const BlockHash& hash, int32_t parent, BlockContent content,
                         Block& block) {
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
  node.content = content;
  node.parent = parent;
  node.children = 0;
  int32_t& bucket = buckets_[BucketOf(hash)];
  node.next = std::exchange(bucket, id);
  if (parent >= 0) {
    CHECK(!nodes_[parent].block.empty());
    if (nodes_[parent].children++ == 0) HeapRemove(parent);
  }
  HeapAdd(id);
  Mark(id);
  ++size_;
  return true;
}

// Under the cap there is a place; at it, one must go.
bool PrefixCache::MakePlace() {
  if (size_ < max_blocks_) return true;
  return max_blocks_ > 0 && Evict(1) == 1;
}

int32_t PrefixCache::Evict(int32_t count) {
  int32_t freed = 0;
  aside_.clear();
  while (freed < count && pool_.idle() > 0 && !heap_.empty()) {
    const int32_t id = heap_.front();
    if (pool_.references(id) > 1) {
      HeapRemove(id);
      aside_.push_back(id);
      continue;
    }
    level_ = std::max(level_, nodes_[id].value);
    Remove(id);
    ++freed;
  }
  for (const int32_t id : aside_) HeapAdd(id);
  return freed;
}

// Takes a leaf out of the tree.
void PrefixCache::Remove(int32_t id) {
  Node& node = nodes_[id];
  CHECK_EQ(node.children, 0);
  evicted_tokens_ += pool_.block_size();
  if (node.content.ahead) ahead_wasted_tokens_ += pool_.block_size();
  HeapRemove(id);
  Unlink(id);
  if (const int32_t parent = node.parent; parent >= 0 && --nodes_[parent].children == 0) {
    HeapAdd(parent);
  }
  pool_.SetCached(id, false);
  node.block.Reset();
  --size_;
}

void PrefixCache::Unlink(int32_t id) {
  int32_t* link = &buckets_[BucketOf(nodes_[id].hash)];
  while (*link != id) link = &nodes_[*link].next;
  *link = nodes_[id].next;
}

// Used now.
void PrefixCache::Mark(int32_t id) {
  Node& node = nodes_[id];
  node.value = level_ + (node.content.rows ? kPictureCost : kTextCost);
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
