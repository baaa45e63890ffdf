#include "services/decode/cache/block_pool.h"

#include "common/base/check.h"

namespace tessera::decode {

Block::Block(const Block& other) : pool_(other.pool_), id_(other.id_) {
  if (pool_ != nullptr) pool_->Share(id_);
}

void Block::Reset() {
  if (pool_ == nullptr) return;
  std::exchange(pool_, nullptr)->Release(std::exchange(id_, -1));
}

BlockPool::BlockPool(int32_t blocks, int32_t block_size)
    : block_size_(block_size), references_(blocks, 0), cached_(blocks, false) {
  CHECK_GE(blocks, 1);
  CHECK_GE(block_size, 1);
  free_.reserve(blocks);
  for (int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

BlockPool::~BlockPool() { CHECK_EQ(free(), total()); }

bool BlockPool::Take(int32_t count, std::vector<Block>& out) {
  CHECK_GE(count, 0);
  if (count > free()) return false;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t block = free_.back();
    free_.pop_back();
    references_[block] = 1;
    out.push_back(Block(this, block));
  }
  return true;
}

void BlockPool::SetCached(int32_t block, bool cached) {
  CHECK_GT(references_[block], 0);
  if (cached_[block] == cached) return;
  cached_[block] = cached;
  if (references_[block] == 1) idle_ += cached ? 1 : -1;
}

void BlockPool::Share(int32_t block) {
  CHECK_GT(references_[block], 0);
  if (++references_[block] == 2 && cached_[block]) --idle_;
}

void BlockPool::Release(int32_t block) {
  CHECK_GT(references_[block], 0);
  const int32_t left = --references_[block];
  if (left == 1 && cached_[block]) ++idle_;
  if (left > 0) return;
  CHECK(!cached_[block]);
  free_.push_back(block);
}

}  // namespace tessera::decode
