// What a step costs beside the device: scheduler, block pool and prefix cache with 64 sequences,
// while they decode and while they come and go. Steps, microseconds, heap allocations.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "services/decode/schedule/scheduler.h"
#include "tests/support/allocation_count.h"

namespace tessera::decode {
namespace {

constexpr int kSequences = 64;
constexpr int kPrompt = 600;  // a picture of 576 rows and a question
constexpr int kBlockSize = 16;
constexpr std::byte kSomeRow{};

struct Measured {
  std::vector<double> microseconds;
  size_t allocations = 0;
  int64_t tokens = 0;
};

class Bench {
 public:
  Bench() {
    options_.max_batch_tokens = 512;
    options_.max_sequences = kSequences;
    options_.context_tokens = 4096;
    scheduler_ = std::make_unique<Scheduler>(options_, pool_, cache_);
  }
  ~Bench() {
    for (Sequence& sequence : sequences_) scheduler_->Remove(sequence);
  }

  void Add(int picture, int answer) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.id = ++last_id_;
    for (int i = 0; i < 4; ++i) sequence.prompt.push_back(i);
    sequence.prompt.insert(sequence.prompt.end(), 576, -1);
    while (static_cast<int>(sequence.prompt.size()) < kPrompt) {
      sequence.prompt.push_back(static_cast<int32_t>(1000 + last_id_));
    }
    sequence.max_tokens = answer;
    sequence.pictures.push_back(
        {store::EmbeddingKey(base::Sha256Of(std::to_string(picture))), 4, 576});
    sequence.rows.resize(1);
    sequence.rows[0].rows = {DType::kF16, {576, 0}, &kSomeRow};
    sequence.root = hasher_.Root({});
    sequence.chain = hasher_.Chain(sequence.root, sequence.prompt, sequence.pictures);
    scheduler_->Open(sequence);
    CHECK(scheduler_->Enqueue(sequence).ok());
  }

  // False when there was nothing to do. `ended`: how many came to their end.
  bool Step(Measured& measured, int* ended) {
    const size_t before = testing::AllocationCount();
    const auto begin = std::chrono::steady_clock::now();
    const BatchPlan& plan = scheduler_->Next();
    const int64_t tokens = plan.tokens();
    if (tokens == 0) return false;
    runs_.assign(plan.sequences(), TokenRun());
    for (const int32_t s : scheduler_->sampled_sequences()) runs_[s] = TokenRun(&kToken, 1);
    scheduler_->Commit(runs_);
    const auto end = std::chrono::steady_clock::now();
    measured.allocations += testing::AllocationCount() - before;
    measured.microseconds.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    measured.tokens += tokens;
    *ended = 0;
    for (Sequence& sequence : sequences_) {
      if (sequence.state == Sequence::State::kNew || sequence.finish == FinishReason::kNone)
        continue;
      scheduler_->Remove(sequence);
      ++*ended;
    }
    while (!sequences_.empty() && sequences_.front().state == Sequence::State::kNew) {
      sequences_.pop_front();
    }
    return true;
  }

 private:
  static constexpr int32_t kToken = 7;
  SchedulerOptions options_;
  BlockPool pool_{kSequences * 64, kBlockSize};
  PrefixCache cache_{kSequences * 64, pool_};
  std::unique_ptr<Scheduler> scheduler_;
  BlockHasher hasher_{kBlockSize};
  std::deque<Sequence> sequences_;
  std::vector<TokenRun> runs_;
  SequenceId last_id_ = 0;
};

void Print(const char* name, Measured measured) {
  std::vector<double>& us = measured.microseconds;
  std::sort(us.begin(), us.end());
  std::printf("%-44s %6zu steps  median %7.2f us  p99 %7.2f us  %.3f allocations a step\n", name,
              us.size(), us[us.size() / 2], us[us.size() * 99 / 100],
              static_cast<double>(measured.allocations) / static_cast<double>(us.size()));
}

int Main() {
  {
    Bench bench;
    Measured warm, decode;
    int ended = 0;
    for (int i = 0; i < kSequences; ++i) bench.Add(i, 400);
    for (int i = 0; i < 100; ++i) bench.Step(warm, &ended);
    for (int i = 0; i < 250; ++i) bench.Step(decode, &ended);
    Print("64 sequences decode", std::move(decode));
  }
  Bench bench;
  Measured warm, mixed;
  int ended = 0;
  int picture = 0;
  for (int i = 0; i < kSequences; ++i) bench.Add(picture++ % 40, 5 + i);
  for (int i = 0; i < 3000; ++i) {
    bench.Step(i < 500 ? warm : mixed, &ended);
    for (; ended > 0; --ended) bench.Add(picture++ % 40, 20);
  }
  Print("64 sequences come and go, 40 pictures", std::move(mixed));
  return 0;
}

}  // namespace
}  // namespace tessera::decode

int main() { return tessera::decode::Main(); }
