#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "services/decode/cache/prompt_picture.h"

namespace tessera::decode {

// Names what a full KV block holds, and all that stands before it: blocks of one name hold the same
// keys and values. SHA-256, never shortened.
using BlockHash = base::Sha256Digest;

// What all blocks of a prompt have in common.
struct ChainRoot {
  absl::string_view tenant = {};
  int32_t adapter = 0;
  absl::string_view pruning = {};
  // Length of the prompt where rotary frequencies depend on it (dynamic scaling), else 0.
  int32_t rotary_length = 0;
};

// Names the blocks of prompts. The chain starts with its root; each block adds its parent's name,
// its token ids and, for every picture's row in it, the picture's key, the transform of its rows
// and the row's number. So two pictures never share a block, nor two tenants. One thread; allocates
// nothing once warm.
class BlockHasher {
 public:
  // REQUIRES: block_size >= 1 token.
  explicit BlockHasher(int32_t block_size) : block_size_(block_size) {}

  // The parent of the first block.
  BlockHash Root(const ChainRoot& root);
  // Block `block`: `ids` are its tokens, -1 where a row stands; block_size of them, fewer where the
  // block is not full. `pictures` are all of the prompt, ascending.
  BlockHash Next(const BlockHash& parent, int32_t block, absl::Span<const int32_t> ids,
                 absl::Span<const PromptPicture> pictures);

  // The names of all full blocks of a prompt.
  std::vector<BlockHash> Chain(const BlockHash& root, absl::Span<const int32_t> ids,
                               absl::Span<const PromptPicture> pictures);

 private:
  const int32_t block_size_;
  base::Sha256 sha_;
};

}  // namespace tessera::decode
