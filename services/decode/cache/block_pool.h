#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::decode {

class BlockPool;

// A counted reference to one KV block: copies share it, the last one gives it back to the pool. The
// engine's thread only; the pool outlives its blocks.
class Block {
 public:
  Block() = default;
  Block(const Block& other);
  Block(Block&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, -1)) {}
  Block& operator=(Block other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~Block() { Reset(); }

  void Reset();                       // gives the reference up; empty afterwards
  int32_t id() const { return id_; }  // -1 when empty
  bool empty() const { return pool_ == nullptr; }

 private:
  friend class BlockPool;
  Block(BlockPool* pool, int32_t id) : pool_(pool), id_(id) {}

  BlockPool* pool_ = nullptr;
  int32_t id_ = -1;
};

// Which KV blocks are free. Knows numbers, not memory. Pure; one thread. Aborts when it dies before
// all of its blocks came back.
class BlockPool {
 public:
  // Blocks 0 .. blocks - 1 of `block_size` tokens. REQUIRES: both at least 1.
  BlockPool(int32_t blocks, int32_t block_size);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Appends `count` blocks to `out`, each with one reference; false and nothing taken when fewer
  // are free.
  bool Take(int32_t count, std::vector<Block>& out);

  // Says that one of the references to `block` is the prefix cache's. REQUIRES: has one.
  void SetCached(int32_t block, bool cached);

  int32_t total() const { return static_cast<int32_t>(references_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t used() const { return total() - free(); }  // idle ones included
  // Blocks that nobody but the prefix cache holds: it can give them back.
  int32_t idle() const { return idle_; }
  // One besides the prefix cache has it.
  bool HeldByOne(int32_t block) const { return references_[block] - cached_[block] == 1; }
  int32_t block_size() const { return block_size_; }
  int32_t references(int32_t block) const { return references_[block]; }
  // Blocks that hold `tokens`.
  int32_t BlocksFor(int64_t tokens) const {
    return static_cast<int32_t>((tokens + block_size_ - 1) / block_size_);
  }

 private:
  friend class Block;
  void Share(int32_t block);
  void Release(int32_t block);

  const int32_t block_size_;
  std::vector<int32_t> references_;  // [blocks]
  std::vector<bool> cached_;         // [blocks]
  int32_t idle_ = 0;
  std::vector<int32_t> free_;  // the last one is taken first
};

}  // namespace tessera::decode
