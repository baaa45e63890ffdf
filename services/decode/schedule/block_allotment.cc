#include "services/decode/schedule/block_allotment.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "common/base/check.h"

namespace tessera::decode {
namespace {

absl::Span<const Block> Named(const Sequence& sequence) {
  return absl::MakeConstSpan(sequence.blocks).first(sequence.named_blocks);
}

}  // namespace

BlockAllotment::BlockAllotment(BlockPool& pool, PrefixCache& cache)
    : pool_(pool), cache_(cache), hasher_(pool.block_size()) {
  block_ids_.reserve(pool.block_size());
}

void BlockAllotment::Match(Sequence& sequence) {
  const int32_t block_size = pool_.block_size();
  CHECK_EQ(sequence.named_blocks, static_cast<int32_t>(sequence.blocks.size()));
  const int32_t most = sequence.ahead() ? sequence.length() : sequence.length() - 1;
  cache_.Extend(sequence.chain, most / block_size, sequence.blocks);
  const int32_t named = static_cast<int32_t>(sequence.blocks.size());
  sequence.named_blocks = named;
  sequence.branch = Branch();
  const int32_t rest = std::min(most - named * block_size, block_size);
  if (named > 0 && rest > 0) {
    sequence.branch = cache_.Continue(sequence.blocks.back().id(), TokensOf(sequence, named, rest));
  }
  sequence.computed = named * block_size + sequence.branch.tokens;
}

bool BlockAllotment::Take(Sequence& sequence, int32_t count) {
  if (count <= 0) return true;
  if (count > available()) return false;
  if (count > pool_.free()) cache_.Evict(count - pool_.free());
  sequence.blocks_taken += count;
  CHECK(pool_.Take(count, sequence.blocks));
  return true;
}

void BlockAllotment::Reserve(Sequence& sequence) const {
  sequence.blocks.reserve(BlocksFor(int64_t{sequence.prompt_tokens()} + sequence.max_tokens));
  sequence.chain.reserve(sequence.blocks.capacity());
}

int32_t BlockAllotment::UseFound(const Sequence& sequence) {
  const int32_t ahead_tokens = cache_.Use(Named(sequence));
  if (sequence.branch.block.empty()) return ahead_tokens;
  return ahead_tokens + std::min(cache_.Use({&sequence.branch.block, 1}), sequence.branch.tokens);
}

void BlockAllotment::UseNamed(const Sequence& sequence) { cache_.Use(Named(sequence)); }

void BlockAllotment::NameFull(Sequence& sequence) {
  const int32_t block_size = pool_.block_size();
  const int32_t full = sequence.sound ? sequence.computed / block_size : 0;
  while (sequence.named_blocks < full) {
    const int32_t block = sequence.named_blocks;
    BlockContent content;
    content.ahead = sequence.ahead();
    content.tokens = TokensOf(sequence, block, block_size);
    if (static_cast<size_t>(block) == sequence.chain.size()) {  // tokens of the answer are in it
      const BlockHash& parent = block == 0 ? sequence.root : sequence.chain.back();
      sequence.chain.push_back(hasher_.Next(parent, block, content.tokens.ids, sequence.pictures));
    }
    const int32_t parent = block == 0 ? -1 : sequence.blocks[block - 1].id();
    if (!cache_.Insert(sequence.chain[block], parent, content, sequence.blocks[block])) return;
    ++sequence.named_blocks;
  }
}

int32_t BlockAllotment::KeepTail(Sequence& sequence) {
  const int32_t block = sequence.named_blocks;
  const int32_t tokens = sequence.computed - block * pool_.block_size();
  // With a branch the tokens are another's block still.
  if (tokens <= 0 || !sequence.branch.block.empty()) return 0;
  if (!sequence.sound) return tokens;
  if (block == 0 || tokens >= pool_.block_size()) return tokens;
  BlockContent content;
  content.ahead = sequence.ahead();
  content.tokens = TokensOf(sequence, block, tokens);
  const BlockHash name =
      hasher_.Next(sequence.chain[block - 1], block, content.tokens.ids, sequence.pictures);
  const bool kept =
      cache_.Insert(name, sequence.blocks[block - 1].id(), content, sequence.blocks[block]);
  return kept ? 0 : tokens;
}

void BlockAllotment::Forget(const Sequence& sequence) {
  // What it found when it came was sound for others before.
  const size_t found = std::min(sequence.blocks_reused, sequence.named_blocks);
  cache_.Forget(Named(sequence).subspan(found));
}

void BlockAllotment::ReleaseBranch(Sequence& sequence) {
  sequence.computed -= std::exchange(sequence.branch, Branch()).tokens;
}

void BlockAllotment::Release(Sequence& sequence) {
  sequence.blocks.clear();
  sequence.branch = Branch();
  sequence.named_blocks = 0;
  sequence.computed = 0;
}

// Tokens [0, count) of a block. Valid until the next call.
BlockTokens BlockAllotment::TokensOf(const Sequence& sequence, int32_t block, int32_t count) {
  const int32_t first = block * pool_.block_size();
  block_ids_.clear();
  for (int32_t i = 0; i < count; ++i) block_ids_.push_back(sequence.TokenAt(first + i));
  BlockTokens tokens;
  tokens.ids = block_ids_;
  for (const PromptPicture& picture : sequence.pictures) {
    const int32_t begin = std::max(first, picture.first_token);
    const int32_t end = std::min(first + count, picture.end_token());
    if (begin >= end) continue;
    tokens.picture = picture.key;
    tokens.place = begin - first;
    tokens.rows = end - begin;
    tokens.first_row = begin - picture.first_token;
    break;
  }
  return tokens;
}

}  // namespace tessera::decode
