#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "services/decode/cache/block_hash.h"
#include "services/decode/cache/block_pool.h"

namespace tessera::decode {

// The tokens of a block, so that two can be compared token by token.
struct BlockTokens {
  absl::Span<const int32_t> ids = {};  // block_size, fewer where the block is not full; -1: a row
  // The first run of rows in it: of which picture, at which place of the block, from which row on.
  store::EmbeddingKey picture = {};
  int32_t place = 0;
  int32_t rows = 0;  // 0: none
  int32_t first_row = 0;
};

// What a block holds.
struct BlockContent {
  BlockTokens tokens = {};
  bool ahead = false;  // computed before anybody asked
};

// A block whose beginning somebody can use: they copy it and go on behind `tokens`.
struct Branch {
  Block block;
  int32_t tokens = 0;
};

// KV blocks that are kept for those who begin alike: a tree of blocks by name, each node one
// block of the pool to which the cache holds a reference. Pure; one thread; allocates nothing after
// construction.
//
// Blocks that are not full are kept too, as leaves: nobody shares them, but whoever begins like one
// of the blocks behind what they share goes on in a copy (Continue).
//
// Who holds a block also holds its ancestors, so what nobody else holds is the lower part of the
// tree and can be given back from the leaves up. Evict takes the leaf of the least value: the level
// of its last use plus what it costs to compute again (GreedyDual; Young, SODA 1994), the level
// being that of the last block evicted; among equals the one used longest ago. So blocks of
// pictures outlive blocks of text of the same age.
class PrefixCache {
 public:
  // Keeps at most `max_blocks`; 0 keeps none. `pool` outlives the cache.
  PrefixCache(int32_t max_blocks, BlockPool& pool);
  // Gives every block back.
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Makes `blocks` references to the blocks named chain[0], chain[1], ..., as far as they are here,
  // at most to `limit` of them. Those that it holds of an earlier call stay, but for forgotten ones
  // and what stands behind them: what is found anew would not be behind those.
  void Extend(absl::Span<const BlockHash> chain, int32_t limit, std::vector<Block>& blocks);
  // Somebody uses these now. Returns how many of their tokens had been computed ahead and not been
  // used so far. Blocks that are not here are passed over.
  int32_t Use(absl::Span<const Block> blocks);

  // Of the blocks behind `parent`, the one that begins with most of `wanted`; empty when none
  // shares a token. Looks at the latest 64.
  Branch Continue(int32_t parent, const BlockTokens& wanted);

  // Keeps `block`, whose content is computed and has this name; `parent` is the block in front of
  // it, -1 for the first of a chain. When another block of this name is here, `block` becomes a
  // reference to that one. False, and nothing done, when `parent` was forgotten, or there is no
  // place: every block is in use. REQUIRES: `parent` is here, full, and the caller holds it;
  // content.tokens are not empty.
  bool Insert(const BlockHash& hash, int32_t parent, BlockContent content, Block& block);

  // What these hold is not to be trusted: nobody finds them any more, nor what stands behind them.
  // They go as those that hold them let go.
  void Forget(absl::Span<const Block> blocks);

  // Lets blocks go until `count` more are free in the pool or none is idle; how many came free.
  int32_t Evict(int32_t count);

  int32_t blocks() const { return size_; }
  bool Has(const BlockHash& hash) const { return Find(hash) >= 0; }
  // Since construction.
  int64_t evicted_tokens() const { return evicted_tokens_; }
  int64_t ahead_used_tokens() const { return ahead_used_tokens_; }
  int64_t ahead_wasted_tokens() const { return ahead_wasted_tokens_; }  // evicted unused

 private:
  // One per block of the pool, by its number.
  struct Node {
    Block block;  // empty: not in the cache
    BlockHash hash;
    BlockTokens tokens;  // ids: in ids_
    bool found = false;  // in a bucket; not so once it was forgotten
    bool ahead = false;
    int32_t parent = -1;
    int32_t first_child = -1;  // the latest
    int32_t sibling_before = -1, sibling_behind = -1;
    int32_t next = -1;     // in the bucket
    int32_t heap_at = -1;  // leaves only
    uint64_t value = 0;    // level of the last use + cost
    uint64_t last_use = 0;
  };

  int32_t Find(const BlockHash& hash) const;
  size_t BucketOf(const BlockHash& hash) const;
  void Mark(int32_t id);
  bool MakePlace();
  void Remove(int32_t id);
  void Unlink(int32_t id);
  void Adopt(int32_t parent, int32_t id);
  void Orphan(int32_t id);

  // The heap of leaves, least valuable on top.
  bool Less(int32_t a, int32_t b) const;
  void HeapAdd(int32_t id);
  void HeapRemove(int32_t id);
  void HeapSift(size_t at);
  void HeapPlace(size_t at, int32_t id);

  const int32_t max_blocks_;
  BlockPool& pool_;
  std::vector<Node> nodes_;       // [pool blocks]
  std::vector<int32_t> buckets_;  // first node of each, a power of two
  std::vector<int32_t> ids_;      // [pool blocks, block_size]
  std::vector<int32_t> heap_;
  std::vector<int32_t> scratch_;  // nodes put by within one Evict or Forget
  int32_t size_ = 0;
  uint64_t level_ = 0;
  uint64_t uses_ = 0;
  int64_t evicted_tokens_ = 0;
  int64_t ahead_used_tokens_ = 0;
  int64_t ahead_wasted_tokens_ = 0;
};

}  // namespace tessera::decode
