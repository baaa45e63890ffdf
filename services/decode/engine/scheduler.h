#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "services/decode/engine/block_pool.h"
#include "services/decode/engine/sequence.h"
#include "services/decode/model/batch_plan.h"

namespace tessera::decode {

struct SchedulerOptions {
  int32_t max_batch_tokens = 512;  // of one step; at least max_sequences
  int32_t max_sequences = 16;      // in the batch
  int32_t max_waiting = 256;       // behind the batch
  int32_t context_tokens = 0;      // of prompt and answer together
  std::vector<int32_t> stop_ids;   // tokens that end an answer
};

// What was sampled for one sequence of a plan: 0 to k tokens, in order.
using TokenRun = absl::Span<const int32_t>;

// What Commit did to one sequence of the plan.
struct Progress {
  Sequence* sequence = nullptr;
  int32_t new_tokens = 0;  // the last ones of sequence->generated
};

// Decides what each step computes. Pure: no thread, socket, device or clock.
//
// One budget of tokens per step: running sequences first, in the order of their arrival, then
// waiting ones in the order of theirs, as many as fit; a prompt longer than what is left is cut,
// and goes on in the next step. Nobody overtakes: the first that must wait for blocks holds the
// ones behind it. The blocks of prompt and answer are taken when a sequence enters the batch, so a
// sequence in the batch always goes on.
//
// Sequences are borrowed: each lives until Remove. A warm decode step allocates nothing.
class Scheduler {
 public:
  // `pool` outlives the scheduler. REQUIRES: max_batch_tokens >= max_sequences >= 1.
  Scheduler(SchedulerOptions options, BlockPool& pool);

  // Most tokens that prompt and answer of one sequence may have.
  int64_t limit_tokens() const;
  // Whether a sequence can ever run. INVALID_ARGUMENT, CONTEXT_TOO_LONG, with all numbers, when it
  // cannot. Any thread: reads constants only.
  absl::Status CheckFits(int64_t prompt_tokens, int64_t image_tokens, int64_t max_tokens) const;

  // Puts `sequence` at the end of the queue. CheckFits' error; RESOURCE_EXHAUSTED, QUEUE_FULL, with
  // a retry delay when the queue is full. REQUIRES: a prompt of at least one token, max_tokens
  // >= 1.
  absl::Status Add(Sequence& sequence);
  // Takes it out of queue or batch and gives its blocks back. False when it is in neither.
  // REQUIRES: not between Next and Commit.
  bool Remove(Sequence& sequence);

  // The next step; without sequences when there is nothing to do. Valid until the next call. Every
  // plan with sequences is followed by Commit or Abandon. REQUIRES: finished sequences were
  // removed.
  const BatchPlan& Next();
  const BatchPlan& plan() const { return plan_; }
  // The sequences of the plan, in its order.
  absl::Span<Sequence* const> planned() const { return planned_; }
  // For each of plan.logit_tokens: how to sample it, and for which sequence of the plan.
  absl::Span<const kernels::SamplingRow> sampling() const { return sampling_; }
  absl::Span<const int32_t> sampled_sequences() const { return sampled_sequences_; }

  // Takes what the step sampled, one run for each sequence of the plan. Tokens go to
  // sequence->generated until one ends it (sequence->finish says how; a stop token is not kept).
  // What the step computed beyond that is rolled back. Valid until the next Commit.
  absl::Span<const Progress> Commit(absl::Span<const TokenRun> runs);
  // The step failed: nothing of it counts.
  void Abandon();

  int32_t running() const { return static_cast<int32_t>(running_.size()); }
  int32_t waiting() const { return static_cast<int32_t>(waiting_.size()); }
  bool idle() const { return running_.empty() && waiting_.empty(); }

 private:
  bool Enter(Sequence& sequence);
  void Plan(Sequence& sequence, int32_t tokens);
  void PlanTokens(const Sequence& sequence, int32_t tokens);
  void PlanRows(const Sequence& sequence, int32_t tokens);
  void PlanTable();
  void Append(Sequence& sequence, TokenRun run);
  bool IsStop(int32_t id) const;

  const SchedulerOptions options_;
  BlockPool& pool_;
  std::deque<Sequence*> waiting_;   // arrival order
  std::vector<Sequence*> running_;  // arrival order
  BatchPlan plan_;
  std::vector<Sequence*> planned_;
  std::vector<kernels::SamplingRow> sampling_;
  std::vector<int32_t> sampled_sequences_;
  std::vector<Progress> progress_;
  bool in_step_ = false;
};

}  // namespace tessera::decode
