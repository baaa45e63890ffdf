// Who gets blocks, and from whom.

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "services/decode/schedule/scheduler.h"

namespace tessera::decode {

// Pins what the prefix cache has behind the blocks that the sequence holds. One token at least
// stays pending: somebody must compute the logits to sample from.
void Scheduler::Match(Sequence& sequence) {
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

// Puts the head of the queue into the batch, or outside when its rows are missing; false when it
// must wait.
bool Scheduler::Enter(Sequence& sequence) {
  Match(sequence);
  if (sequence.LacksRows()) {
    Expel(sequence);
    return true;
  }
  const int32_t blocks =
      pool_.BlocksFor(sequence.length()) - static_cast<int32_t>(sequence.blocks.size());
  // Each that runs may grow by one.
  while (blocks + running() > pool_.free() + pool_.idle()) {
    if (FreeSomething(sequence)) continue;
    if (!running_.empty() || sequence.branch.block.empty()) return false;
    // Alone, and the block that it would copy is the one that it lacks.
    sequence.computed -= std::exchange(sequence.branch, Branch()).tokens;
    if (!sequence.LacksRows()) continue;
    Expel(sequence);
    return true;
  }
  CHECK(TakeBlocks(sequence, blocks));
  queue_.Erase(sequence);
  sequence.state = Sequence::State::kRunning;
  const auto at =
      std::upper_bound(running_.begin(), running_.end(), &sequence,
                       [](const Sequence* a, const Sequence* b) { return a->id < b->id; });
  running_.insert(at, &sequence);
  Account(sequence);
  return true;
}

// Counts what a sequence found when it first came in.
void Scheduler::Account(Sequence& sequence) {
  const auto found = absl::MakeConstSpan(sequence.blocks).first(sequence.named_blocks);
  int32_t ahead_tokens = cache_.Use(found);
  if (!sequence.branch.block.empty()) {
    ahead_tokens += std::min(cache_.Use({&sequence.branch.block, 1}), sequence.branch.tokens);
  }
  if (std::exchange(sequence.entered, true)) return;
  sequence.blocks.reserve(pool_.BlocksFor(int64_t{sequence.prompt_tokens()} + sequence.max_tokens));
  sequence.generated.reserve(sequence.max_tokens);
  sequence.chain.reserve(sequence.blocks.capacity());
  sequence.cached_tokens = sequence.computed;
  sequence.ahead_tokens = ahead_tokens;
  sequence.blocks_reused = sequence.named_blocks;
  counts_.queried_tokens += sequence.prompt_tokens();
  counts_.hit_tokens += sequence.computed;
}

// A block for the pending token; false when the sequence had to go back to the queue for it.
bool Scheduler::Grow(Sequence& sequence) {
  const int32_t blocks =
      pool_.BlocksFor(sequence.length()) - static_cast<int32_t>(sequence.blocks.size());
  while (!TakeBlocks(sequence, blocks)) {
    if (FreeSomething(sequence)) continue;
    Sequence* youngest = YoungestToPreempt();
    Preempt(*youngest);
    if (youngest == &sequence) return false;
  }
  return true;
}

// From those that are free or idle.
bool Scheduler::TakeBlocks(Sequence& sequence, int32_t count) {
  if (count <= 0) return true;
  if (count > pool_.free() + pool_.idle()) return false;
  if (count > pool_.free()) cache_.Evict(count - pool_.free());
  sequence.blocks_taken += count;
  CHECK(pool_.Take(count, sequence.blocks));
  return true;
}

// Blocks of those that do not go on.
bool Scheduler::FreeSomething(const Sequence& sequence) {
  if (!ahead_.empty()) {
    DropAhead();
    return true;
  }
  Sequence* pinned = YoungestPinned(sequence);
  if (pinned == nullptr) return PreemptPaused();
  Release(*pinned);
  return true;
}

// The youngest that holds blocks and does not run.
Sequence* Scheduler::YoungestPinned(const Sequence& besides) {
  const auto pinned = [&besides](const Sequence& sequence) {
    const bool holds = !sequence.blocks.empty() || !sequence.branch.block.empty();
    return holds && &sequence != &besides;
  };
  Sequence* youngest = queue_.Youngest(pinned);
  for (Sequence* sequence : outside_) {
    if (pinned(*sequence) && (youngest == nullptr || sequence->id > youngest->id)) {
      youngest = sequence;
    }
  }
  return youngest;
}

// The youngest that runs and has no part in this step. PlanDecoding goes from the oldest to the
// youngest, so that is the one that asks, or one behind it.
Sequence* Scheduler::YoungestToPreempt() {
  for (size_t i = running_.size(); i-- > 0;) {
    if (!builder_.Has(*running_[i])) return running_[i];
  }
  CHECK(false);
  return nullptr;
}

// The youngest that is paused leaves the batch: a slow reader holds nobody up.
bool Scheduler::PreemptPaused() {
  for (size_t i = running_.size(); i-- > 0;) {
    if (!running_[i]->paused) continue;
    Preempt(*running_[i]);
    return true;
  }
  return false;
}

void Scheduler::Preempt(Sequence& sequence) {
  ++counts_.preemptions;
  ++sequence.preemptions;
  KeepTail(sequence);
  Release(sequence);
  std::erase(running_, &sequence);
  if (sequence.paused) return Expel(sequence);  // it comes back when its reader does
  sequence.state = Sequence::State::kWaiting;
  queue_.Push(sequence);
}

// Its blocks go; its tokens stay.
void Scheduler::Release(Sequence& sequence) {
  sequence.blocks.clear();
  sequence.branch = Branch();
  sequence.named_blocks = 0;
  sequence.computed = 0;
}

// All of it, running or not.
void Scheduler::DropAhead() {
  for (Sequence* sequence : ahead_) {
    sequence->finish = FinishReason::kDropped;
    counts_.ahead_dropped_tokens += KeepTail(*sequence);
    Release(*sequence);
    sequence->state = Sequence::State::kOutside;
    outside_.push_back(sequence);
    expelled_.push_back(sequence);
  }
  ahead_.clear();
}

// Out of the queue, until it has its rows or is removed.
void Scheduler::Expel(Sequence& sequence) {
  queue_.Erase(sequence);
  std::erase(ahead_, &sequence);
  sequence.state = Sequence::State::kOutside;
  outside_.push_back(&sequence);
  expelled_.push_back(&sequence);
}

// Tokens [0, count) of a block. Valid until the next call.
BlockTokens Scheduler::TokensOf(const Sequence& sequence, int32_t block, int32_t count) {
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

// Puts the blocks that are full and computed now into the prefix cache.
void Scheduler::NameBlocks(Sequence& sequence) {
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

// Before its blocks go: the last one, which is not full, is kept for those who begin likewise.
// Returns how many computed tokens are lost.
int32_t Scheduler::KeepTail(Sequence& sequence) {
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

}  // namespace tessera::decode
