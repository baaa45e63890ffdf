// The scheduler against a slow and obvious model of it: 100,000 random operations.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "services/decode/engine/scheduler.h"

namespace tessera::decode {
namespace {

constexpr int kBlockSize = 4;
constexpr int kBlocks = 20;
constexpr int kStop = 0;

// What the model knows of a sequence.
struct Known {
  Sequence sequence;
  int computed = 0;
  std::vector<int> tokens;           // prompt and answer
  std::map<int, int> slot_of_place;  // where the scheduler once put a place
  bool finished = false;

  int blocks() const {
    return (sequence.prompt_tokens() + sequence.max_tokens - 1 + kBlockSize - 1) / kBlockSize;
  }
  int pending() const { return static_cast<int>(tokens.size()) - computed; }
};

class SchedulerModel {
 public:
  explicit SchedulerModel(uint64_t seed) : random_(static_cast<uint32_t>(seed)) {
    options_.max_batch_tokens = 3 + Below(20);
    options_.max_sequences = 1 + Below(std::min(options_.max_batch_tokens, 6));
    options_.max_waiting = 1 + Below(8);
    options_.context_tokens = 20 + Below(60);
    options_.stop_ids = {kStop};
    scheduler_.emplace(options_, pool_);
  }

  void Operate() {
    switch (Below(8)) {
      case 0:
      case 1:
        return Add();
      case 2:
        return Below(3) == 0 ? Cancel() : Step();
      default:
        return Step();
    }
  }

  void Finish() {
    while (!waiting_.empty()) Remove(waiting_, 0);
    while (!running_.empty()) Remove(running_, 0);
    ASSERT_TRUE(scheduler_->idle());
    ASSERT_EQ(pool_.used(), 0);
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % n); }

  void Add() {
    auto known = std::make_unique<Known>();
    for (int i = 1 + Below(40); i > 0; --i) known->sequence.prompt.push_back(1 + Below(90));
    known->sequence.max_tokens = 1 + Below(30);
    known->tokens.assign(known->sequence.prompt.begin(), known->sequence.prompt.end());
    const int total = known->sequence.prompt_tokens() + known->sequence.max_tokens;
    const bool fits = total <= options_.context_tokens && known->blocks() <= kBlocks;
    const bool room = static_cast<int>(waiting_.size()) < options_.max_waiting;
    const absl::Status status = scheduler_->Add(known->sequence);
    ASSERT_EQ(status.code(), !fits  ? absl::StatusCode::kInvalidArgument
                             : room ? absl::StatusCode::kOk
                                    : absl::StatusCode::kResourceExhausted);
    if (status.ok()) waiting_.push_back(std::move(known));
  }

  void Cancel() {
    const int all = static_cast<int>(waiting_.size() + running_.size());
    if (all == 0) return;
    const int at = Below(all);
    if (at < static_cast<int>(running_.size())) {
      Remove(running_, at);
    } else {
      Remove(waiting_, at - running_.size());
    }
  }

  template <typename List>
  void Remove(List& list, size_t at) {
    ASSERT_TRUE(scheduler_->Remove(list[at]->sequence));
    ASSERT_FALSE(scheduler_->Remove(list[at]->sequence));
    list.erase(list.begin() + at);
  }

  // Who computes how much, by the words of scheduler.h.
  std::vector<std::pair<Known*, int>> ExpectedPlan() {
    std::vector<std::pair<Known*, int>> plan;
    int budget = options_.max_batch_tokens;
    int free = kBlocks;
    for (auto& known : running_) {
      free -= known->blocks();
      const int tokens = std::min(known->pending(), budget);
      if (tokens > 0) plan.emplace_back(known.get(), tokens);
      budget -= tokens;
    }
    while (budget > 0 && !waiting_.empty() &&
           static_cast<int>(running_.size()) < options_.max_sequences &&
           waiting_.front()->blocks() <= free) {
      free -= waiting_.front()->blocks();
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      const int tokens = std::min(running_.back()->pending(), budget);
      plan.emplace_back(running_.back().get(), tokens);
      budget -= tokens;
    }
    return plan;
  }

  void Step() {
    const std::vector<std::pair<Known*, int>> expected = ExpectedPlan();
    const BatchPlan& plan = scheduler_->Next();
    ASSERT_EQ(plan.sequences(), static_cast<int64_t>(expected.size()));
    ASSERT_LE(plan.tokens(), options_.max_batch_tokens);
    for (size_t s = 0; s < expected.size(); ++s) {
      ASSERT_NO_FATAL_FAILURE(CheckSequence(plan, s, *expected[s].first, expected[s].second));
    }
    ASSERT_NO_FATAL_FAILURE(CheckSlots(plan));
    if (expected.empty()) return;
    if (Below(20) == 0) return scheduler_->Abandon();
    Commit(expected);
  }

  void CheckSequence(const BatchPlan& plan, size_t s, Known& known, int tokens) {
    ASSERT_EQ(scheduler_->planned()[s], &known.sequence);
    ASSERT_EQ(plan.query_begin[s + 1] - plan.query_begin[s], tokens);
    const LayerGroup& group = plan.groups[0];
    ASSERT_EQ(group.context[s], known.computed + tokens);
    for (int i = 0; i < tokens; ++i) {
      const int token = plan.query_begin[s] + i;
      const int place = known.computed + i;
      ASSERT_EQ(plan.ids[token], known.tokens[place]);
      ASSERT_EQ(plan.positions[0][token], place);
      ASSERT_EQ(plan.rotary_length[token], std::max(known.sequence.prompt_tokens(), place + 1));
      known.slot_of_place[place] = group.slots[token];
    }
    for (int place = 0; place < group.context[s]; ++place) {
      const int block = group.block_table[s * group.table_width + place / kBlockSize];
      ASSERT_EQ(known.slot_of_place.at(place), block * kBlockSize + place % kBlockSize);
    }
    const bool wants = known.computed + tokens == static_cast<int>(known.tokens.size());
    const auto& logits = plan.logit_tokens;
    ASSERT_EQ(std::count(logits.begin(), logits.end(), plan.query_begin[s + 1] - 1), wants);
  }

  // No two sequences of the batch share a slot.
  void CheckSlots(const BatchPlan& plan) {
    std::set<int> slots;
    size_t places = 0;
    for (const auto& known : running_) {
      for (const auto& [place, slot] : known->slot_of_place) {
        ASSERT_TRUE(slot >= 0 && slot < kBlocks * kBlockSize);
        slots.insert(slot);
        ++places;
      }
    }
    ASSERT_EQ(slots.size(), places);
  }

  void Commit(const std::vector<std::pair<Known*, int>>& expected) {
    std::vector<std::vector<int32_t>> sampled(expected.size());
    for (const int32_t s : scheduler_->sampled_sequences()) {
      for (int i = Below(10) == 0 ? Below(4) : 1; i > 0; --i) sampled[s].push_back(Below(30));
    }
    std::vector<TokenRun> runs(sampled.begin(), sampled.end());
    const absl::Span<const Progress> progress = scheduler_->Commit(runs);
    ASSERT_EQ(progress.size(), expected.size());
    for (size_t s = 0; s < expected.size(); ++s) {
      Known& known = *expected[s].first;
      known.computed += expected[s].second;
      int taken = 0;
      for (const int32_t id : sampled[s]) {
        known.finished = id == kStop;
        if (known.finished) break;
        known.tokens.push_back(id);
        ++taken;
        known.finished = static_cast<int>(known.tokens.size()) - known.sequence.prompt_tokens() ==
                         known.sequence.max_tokens;
        if (known.finished) break;
      }
      known.computed = std::min(known.computed, static_cast<int>(known.tokens.size()) - 1);
      ASSERT_EQ(progress[s].new_tokens, taken);
      ASSERT_EQ(known.sequence.finish != FinishReason::kNone, known.finished);
    }
    for (size_t i = running_.size(); i-- > 0;) {
      if (running_[i]->finished) Remove(running_, i);
    }
  }

  std::mt19937 random_;
  SchedulerOptions options_;
  BlockPool pool_{kBlocks, kBlockSize};
  std::optional<Scheduler> scheduler_;
  std::deque<std::unique_ptr<Known>> waiting_;
  std::vector<std::unique_ptr<Known>> running_;
};

TEST(SchedulerModelTest, RandomOperationsAgreeWithAnObviousModel) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    SchedulerModel model(seed);
    for (int operation = 0; operation < 1000; ++operation) {
      ASSERT_NO_FATAL_FAILURE(model.Operate());
    }
    ASSERT_NO_FATAL_FAILURE(model.Finish());
  }
}

}  // namespace
}  // namespace tessera::decode
