#pragma once

#include <cstdint>
#include <vector>

#include "services/decode/cache/block_hash.h"
#include "services/decode/cache/block_pool.h"
#include "services/decode/cache/prefix_cache.h"
#include "services/decode/schedule/sequence.h"

namespace tessera::decode {

// The KV blocks that sequences hold: found in the prefix cache, taken from the pool, named once
// they are computed, given back. Who goes without when there are too few is the scheduler's to say.
// Pure; one thread; allocates nothing once warm.
class BlockAllotment {
 public:
  // `pool` and `cache` (of the same pool) outlive this.
  BlockAllotment(BlockPool& pool, PrefixCache& cache);

  // Tokens that all blocks hold together.
  int64_t pool_tokens() const { return int64_t{pool_.total()} * pool_.block_size(); }
  int32_t block_size() const { return pool_.block_size(); }
  int32_t BlocksFor(int64_t tokens) const { return pool_.BlocksFor(tokens); }
  // Blocks that can be taken: free ones, and those that nobody but the prefix cache holds.
  int32_t available() const { return pool_.free() + pool_.idle(); }
  // Blocks that the sequence needs for all its tokens and does not hold.
  int32_t Lacking(const Sequence& sequence) const {
    return pool_.BlocksFor(sequence.length()) - static_cast<int32_t>(sequence.blocks.size());
  }

  // Pins what the prefix cache has behind the blocks that the sequence holds; `computed` says how
  // much it has then. Of a question one token at least stays pending: somebody must compute the
  // logits to sample from. REQUIRES: all blocks that it holds are named.
  void Match(Sequence& sequence);
  // Appends `count` blocks to the sequence's, evicting idle ones where none is free; false, and
  // nothing done, when fewer are available.
  bool Take(Sequence& sequence, int32_t count);
  // Room for the blocks of the whole prompt and answer, so that later steps allocate nothing.
  void Reserve(Sequence& sequence) const;

  // The sequence computes with what it found from now on: named blocks and branch. Returns how many
  // of these tokens ahead-work had computed and nobody had used so far.
  int32_t UseFound(const Sequence& sequence);
  // The sequence used its named blocks until now.
  void UseNamed(const Sequence& sequence);

  // Puts the blocks that are full and computed into the prefix cache.
  void NameFull(Sequence& sequence);
  // Before its blocks go: the last one, which is not full, is kept for those who begin alike.
  // Returns how many computed tokens are lost.
  int32_t KeepTail(Sequence& sequence);
  // Nobody finds what it computed and named any more, nor what stands behind that.
  void Forget(const Sequence& sequence);
  // The block that would be copied is given back, and its tokens are pending again.
  void ReleaseBranch(Sequence& sequence);
  // All its blocks go; its tokens stay, all of them pending.
  void Release(Sequence& sequence);

 private:
  BlockTokens TokensOf(const Sequence& sequence, int32_t block, int32_t count);

  BlockPool& pool_;
  PrefixCache& cache_;
  BlockHasher hasher_;
  std::vector<int32_t> block_ids_;  // of the block being looked up or named
};

}  // namespace tessera::decode
