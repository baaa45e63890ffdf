#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "services/decode/cache/block_pool.h"
#include "services/decode/cache/prefix_cache.h"
#include "services/decode/model/batch_plan.h"
#include "services/decode/schedule/block_allotment.h"
#include "services/decode/schedule/fair_queue.h"
#include "services/decode/schedule/plan_builder.h"
#include "services/decode/schedule/sequence.h"

namespace tessera::decode {

struct SchedulerOptions {
  int32_t max_batch_tokens = 512;  // of one step; at least max_sequences
  int32_t max_sequences = 16;      // in the batch
  int32_t max_waiting = 256;       // behind the batch
  int32_t context_tokens = 0;      // of prompt and answer together
  std::vector<int32_t> stop_ids;   // tokens that end an answer
  int32_t tenant_quantum = 512;    // tokens of a turn between tenants; at least 1
  // Tokens of ahead-work in a step that also serves questions: what it adds to their time.
  int32_t ahead_beside_tokens = 64;
};

// What was sampled for one sequence of a plan: 0 to k tokens, in order.
using TokenRun = absl::Span<const int32_t>;

// What Commit did to one sequence of the plan.
struct Progress {
  Sequence* sequence = nullptr;
  int32_t new_tokens = 0;  // the last ones of sequence->generated
};

// Since construction.
struct SchedulerCounts {
  int64_t preemptions = 0;
  int64_t queried_tokens = 0;        // looked up in the prefix cache: prompts of questions
  int64_t hit_tokens = 0;            // of these, found
  int64_t ahead_dropped_tokens = 0;  // computed by ahead-work and in no full block when it ended
};

// Decides what each step computes, and with which blocks. Pure: no thread, socket, device or clock.
//
// One budget of tokens per step. First every running sequence that has one pending token; then
// running ones in prefill, by arrival; then waiting ones in the order of FairQueue, each cut to
// what is left; then ahead-work. So a long prompt delays the others by one chunk at most.
//
// A sequence enters when there are blocks for all its pending tokens and one more for each running
// one; the first that must wait holds those behind it. Later it takes blocks as it grows. Where
// none is left, in this order: idle blocks of the prefix cache are evicted, ahead-work is dropped,
// sequences that do not run give up their pinned blocks, paused ones leave the batch, and the
// youngest that runs goes back to the queue with its tokens kept (preemption by recompute). The
// oldest that is not paused always goes on.
//
// Full blocks whose content is computed go into the prefix cache, under names that cover all that
// stands before them, and the last block of who leaves, as far as it was filled. Who enters begins
// behind what it finds there, in a copy where a block is shared in part, with one pending token at
// least. Sequences are borrowed: each lives until Remove. A warm decode step allocates nothing.
class Scheduler {
 public:
  // `pool` and `cache` (of the same pool) outlive the scheduler.
  // REQUIRES: max_batch_tokens >= max_sequences >= 1.
  Scheduler(SchedulerOptions options, BlockPool& pool, PrefixCache& cache);

  // Most tokens that prompt and answer of one sequence may have.
  int64_t limit_tokens() const;
  // Whether a sequence can ever run. INVALID_ARGUMENT, CONTEXT_TOO_LONG, with all numbers, when it
  // cannot. Any thread: reads constants only.
  absl::Status CheckFits(int64_t prompt_tokens, int64_t image_tokens, int64_t max_tokens) const;

  // Makes a sequence known and pins what the prefix cache has of it, as long as blocks last:
  // `computed` says how much. It is kOutside then; ahead-work of which all is there has ended.
  // REQUIRES: kNew, a prompt, max_tokens >= 1 (0 for ahead-work), CheckFits.
  void Open(Sequence& sequence);
  // Puts it into the queue. RESOURCE_EXHAUSTED, QUEUE_FULL, with a retry delay when that is full.
  // REQUIRES: kOutside, and no rows are lacking.
  absl::Status Enqueue(Sequence& sequence);
  // Forgets it and gives its blocks back. False when it is not known.
  // REQUIRES: not between Next and Commit.
  bool Remove(Sequence& sequence);

  // A paused sequence is not planned; it keeps its blocks and its place in the batch until another
  // needs them. REQUIRES for Pause: kRunning.
  void Pause(Sequence& sequence) { sequence.paused = true; }
  void Resume(Sequence& sequence) { sequence.paused = false; }

  // The next step; without sequences when there is nothing to do. Valid until the next call. Every
  // plan with sequences is followed by Commit or Abandon. REQUIRES: finished sequences were
  // removed.
  const BatchPlan& Next();
  // Those that Next put outside. With finish kNone: their rows are missing again, or they were
  // paused and had to give way; Enqueue brings them back. Else it is ahead-work that ended, to be
  // removed. Valid until the next call of Next.
  absl::Span<Sequence* const> expelled() const { return expelled_; }
  const BatchPlan& plan() const { return builder_.plan(); }
  // The sequences of the plan, in its order.
  absl::Span<Sequence* const> planned() const { return builder_.planned(); }
  // For each of plan.logit_tokens: how to sample it, and for which sequence of the plan.
  absl::Span<const kernels::SamplingRow> sampling() const { return builder_.sampling(); }
  absl::Span<const int32_t> sampled_sequences() const { return builder_.sampled_sequences(); }

  // Takes what the step sampled, one run for each sequence of the plan. Tokens go to
  // sequence->generated until one ends it (sequence->finish says how; a stop token is not kept).
  // What the step computed beyond that is rolled back. Valid until the next Commit.
  absl::Span<const Progress> Commit(absl::Span<const TokenRun> runs);
  // Before Commit: the step computed NaN or infinity for this one. Neither what it holds nor what
  // others built on that is shared any more.
  void Distrust(Sequence& sequence);
  // The step failed: nothing of it counts.
  void Abandon();

  int32_t running() const { return static_cast<int32_t>(running_.size()); }
  int32_t waiting() const { return queue_.size(); }
  bool idle() const { return running_.empty() && queue_.empty() && ahead_.empty(); }
  const SchedulerCounts& counts() const { return counts_; }

 private:
  void PlanDecoding(int32_t& budget);
  void PlanPrefills(int32_t& budget);
  void PlanWaiting(int32_t& budget);
  void PlanAhead(int32_t budget);
  void Plan(Sequence& sequence, int32_t tokens, int32_t& budget);

  bool Enter(Sequence& sequence);
  void Account(Sequence& sequence);
  bool Grow(Sequence& sequence);
  bool FreeSomething(const Sequence& sequence);
  Sequence* YoungestPinned(const Sequence& besides);
  Sequence* YoungestToPreempt();
  bool PreemptPaused();
  void Preempt(Sequence& sequence);
  void DropAhead();
  void Expel(Sequence& sequence);

  void Append(Sequence& sequence, TokenRun run);
  void Settle(Sequence& sequence);
  bool IsStop(int32_t id) const;

  const SchedulerOptions options_;
  BlockAllotment blocks_;
  FairQueue queue_;
  std::vector<Sequence*> outside_;  // questions and ahead-work, arrival order
  std::vector<Sequence*> running_;  // questions, arrival order
  std::vector<Sequence*> ahead_;    // ahead-work that waits or runs, arrival order
  Sequence* stalled_head_ =
      nullptr;  // the head of the queue, when it must wait: nobody goes before it
  PlanBuilder builder_;
  std::vector<Sequence*> expelled_;
  std::vector<Progress> progress_;
  SchedulerCounts counts_;
  bool in_step_ = false;
};

}  // namespace tessera::decode
