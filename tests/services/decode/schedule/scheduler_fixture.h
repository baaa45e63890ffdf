#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "services/decode/schedule/scheduler.h"
#include "tests/services/decode/engine/fake_engine.h"

namespace tessera::decode {

// Names the full blocks of the prompt.
inline void NameChain(Sequence& sequence, int32_t block_size) {
  BlockHasher hasher(block_size);
  ChainRoot root;
  root.tenant = sequence.tenant;
  sequence.root = hasher.Root(root);
  sequence.chain = hasher.Chain(sequence.root, sequence.prompt, sequence.pictures);
}

inline SchedulerOptions Small() {
  SchedulerOptions options;
  options.max_batch_tokens = 8;
  options.max_sequences = 3;
  options.max_waiting = 8;
  options.context_tokens = 64;
  options.stop_ids = {0, 9};
  return options;
}

class SchedulerTest : public ::testing::Test {
 protected:
  ~SchedulerTest() override { RemoveAll(); }

  void RemoveAll() {
    for (Sequence& sequence : sequences_) {
      if (scheduler_ != nullptr) scheduler_->Remove(sequence);
    }
  }

  void Start(const SchedulerOptions& options, int32_t blocks, int32_t cache_blocks = 0) {
    RemoveAll();
    scheduler_.reset();
    cache_.reset();
    pool_ = std::make_unique<BlockPool>(blocks, 4);
    cache_ = std::make_unique<PrefixCache>(cache_blocks, *pool_);
    scheduler_ = std::make_unique<Scheduler>(options, *pool_, *cache_);
  }

  Sequence& Make(int prompt_tokens, int max_tokens) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.id = sequences_.size();
    for (int i = 0; i < prompt_tokens; ++i) sequence.prompt.push_back(100 + i);
    sequence.max_tokens = max_tokens;
    return sequence;
  }
  // `before` tokens, `rows` rows of picture `key` whose first number is the row's, `after` tokens.
  Sequence& MakePicture(int before, uint8_t key, int rows, int after, int max_tokens) {
    Sequence& sequence = Make(before + rows + after, max_tokens);
    std::fill_n(sequence.prompt.begin() + before, rows, -1);
    sequence.pictures.push_back({testing::FakeKey(key), before, rows});
    sequence.rows.push_back(RowsOf(rows));
    return sequence;
  }
  static PictureRows RowsOf(int rows) {
    auto data = std::make_shared<std::vector<float>>();
    for (int row = 0; row < rows; ++row) data->insert(data->end(), {1.0f * row, 0.0f});
    PictureRows picture;
    picture.rows.dtype = DType::kF32;
    picture.rows.shape = {rows, 2};
    picture.rows.data = reinterpret_cast<const std::byte*>(data->data());
    picture.owner = std::move(data);
    return picture;
  }
  // Computes until the sequence ends; how many tokens it took.
  int Run(Sequence& sequence) {
    int tokens = 0;
    while (sequence.finish == FinishReason::kNone) {
      const int before = sequence.computed_tokens;
      if (Step().empty()) break;
      tokens += sequence.computed_tokens - before;
    }
    return tokens;
  }
  // The ids of those that Next put outside.
  std::vector<SequenceId> Expelled() const {
    std::vector<SequenceId> ids;
    for (const Sequence* sequence : scheduler_->expelled()) ids.push_back(sequence->id);
    return ids;
  }

  Sequence& Add(int prompt_tokens, int max_tokens) {
    Sequence& sequence = Make(prompt_tokens, max_tokens);
    const absl::Status status = Offer(sequence);
    EXPECT_TRUE(status.ok()) << status;
    return sequence;
  }

  absl::Status Offer(Sequence& sequence) {
    NameChain(sequence, pool_->block_size());
    if (sequence.state == Sequence::State::kNew) scheduler_->Open(sequence);
    return scheduler_->Enqueue(sequence);
  }

  // Computes one step in which every sequence with logits samples `token`; "id:tokens" of the plan.
  std::vector<std::string> Step(int32_t token = 5) {
    const BatchPlan& plan = scheduler_->Next();
    std::vector<std::string> planned;
    for (int64_t s = 0; s < plan.sequences(); ++s) {
      planned.push_back(std::to_string(scheduler_->planned()[s]->id) + ":" +
                        std::to_string(plan.query_begin[s + 1] - plan.query_begin[s]));
    }
    if (planned.empty()) return planned;
    std::vector<TokenRun> runs(planned.size());
    for (const int32_t s : scheduler_->sampled_sequences()) runs[s] = TokenRun(&token, 1);
    for (const Progress& progress : scheduler_->Commit(runs)) {
      if (progress.sequence->finish != FinishReason::kNone) scheduler_->Remove(*progress.sequence);
    }
    return planned;
  }

  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<Sequence> sequences_;
};

}  // namespace tessera::decode
