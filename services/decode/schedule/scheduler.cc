#include "services/decode/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/error.h"

namespace tessera::decode {

Scheduler::Scheduler(SchedulerOptions options, BlockPool& pool, PrefixCache& cache)
    : options_(std::move(options)),
      blocks_(pool, cache),
      queue_(options_.tenant_quantum),
      builder_({.tokens = options_.max_batch_tokens,
                .sequences = options_.max_sequences,
                .blocks = blocks_.BlocksFor(limit_tokens()),
                .block_size = blocks_.block_size()}) {
  CHECK_GE(options_.max_sequences, 1);
  CHECK_GE(options_.max_batch_tokens, options_.max_sequences);
  CHECK_GE(options_.context_tokens, 1);
  CHECK_GE(options_.tenant_quantum, 1);
  running_.reserve(options_.max_sequences);
  progress_.reserve(options_.max_sequences);
}

int64_t Scheduler::limit_tokens() const {
  // The last token of an answer needs no place in the pool.
  return std::min<int64_t>(options_.context_tokens, blocks_.pool_tokens() + 1);
}

absl::Status Scheduler::CheckFits(int64_t prompt_tokens, int64_t image_tokens,
                                  int64_t max_tokens) const {
  if (prompt_tokens + max_tokens <= limit_tokens()) return absl::OkStatus();
  return base::BadField(
      "messages", "CONTEXT_TOO_LONG",
      absl::StrCat("the prompt has ", prompt_tokens, " tokens, ", image_tokens,
                   " of them rows of pictures, and ", max_tokens,
                   " of answer are asked for; prompt and answer together may have ", limit_tokens(),
                   " (context ", options_.context_tokens, ", KV cache ", blocks_.pool_tokens(),
                   "). Shorten the messages or use fewer pictures"));
}

// ------------------------------------------------------------------ known sequences

void Scheduler::Open(Sequence& sequence) {
  CHECK(sequence.state == Sequence::State::kNew);
  CHECK_GE(sequence.prompt_tokens(), 1);
  CHECK_GE(sequence.max_tokens, sequence.ahead() ? 0 : 1);
  CHECK(CheckFits(sequence.prompt_tokens(), 0, sequence.max_tokens).ok());
  CHECK_EQ(sequence.rows.size(), sequence.pictures.size());
  sequence.state = Sequence::State::kOutside;
  queue_.Open(sequence);
  outside_.push_back(&sequence);
  blocks_.Match(sequence);
  if (sequence.pending() == 0) {
    sequence.cached_tokens = sequence.computed;
    sequence.finish = FinishReason::kLength;
  }
}

absl::Status Scheduler::Enqueue(Sequence& sequence) {
  CHECK(sequence.state == Sequence::State::kOutside);
  CHECK(!sequence.LacksRows());
  if (waiting() >= options_.max_waiting && !sequence.entered) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    absl::StrCat(waiting(), " requests wait already; ask again later")),
        absl::Seconds(1));
  }
  std::erase(outside_, &sequence);
  sequence.state = Sequence::State::kWaiting;
  if (sequence.ahead()) {
    ahead_.push_back(&sequence);
  } else {
    queue_.Push(sequence);
  }
  return absl::OkStatus();
}

bool Scheduler::Remove(Sequence& sequence) {
  CHECK(!in_step_);
  if (sequence.state == Sequence::State::kNew) return false;
  const int32_t lost = blocks_.KeepTail(sequence);
  if (sequence.ahead()) counts_.ahead_dropped_tokens += lost;
  if (sequence.entered) blocks_.UseNamed(sequence);
  blocks_.Release(sequence);
  if (stalled_head_ == &sequence) stalled_head_ = nullptr;
  queue_.Erase(sequence);
  std::erase(outside_, &sequence);
  std::erase(running_, &sequence);
  std::erase(ahead_, &sequence);
  queue_.Close(sequence);
  sequence.state = Sequence::State::kNew;
  return true;
}

// ------------------------------------------------------------------ one step

const BatchPlan& Scheduler::Next() {
  CHECK(!in_step_);
  builder_.Clear();
  expelled_.clear();
  int32_t budget = options_.max_batch_tokens;
  PlanDecoding(budget);
  PlanPrefills(budget);
  PlanWaiting(budget);
  if (budget == 0 || !queue_.empty()) DropAhead();
  PlanAhead(budget);
  builder_.PlanTable();
  in_step_ = !planned().empty();
  return plan();
}

void Scheduler::Plan(Sequence& sequence, int32_t tokens, int32_t& budget) {
  builder_.Add(sequence, tokens);
  if (!sequence.ahead()) queue_.Charge(sequence, tokens);  // ahead-work takes what is left over
  budget -= tokens;
}

// From the oldest to the youngest. Those in prefill get blocks too: they lack some when several
// tokens came at a time.
void Scheduler::PlanDecoding(int32_t& budget) {
  const auto older = [](const Sequence* a, const Sequence* b) { return a->id < b->id; };
  for (size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    CHECK(sequence.finish == FinishReason::kNone);
    if (!sequence.paused && Grow(sequence) && sequence.pending() == 1) Plan(sequence, 1, budget);
    // The next one; to grow, it or others may have left.
    i = std::upper_bound(running_.begin(), running_.end(), &sequence, older) - running_.begin();
  }
}

void Scheduler::PlanPrefills(int32_t& budget) {
  for (Sequence* sequence : running_) {
    if (budget == 0) return;
    if (sequence->pending() == 1 || sequence->paused) continue;
    Plan(*sequence, std::min(sequence->pending(), budget), budget);
  }
}

void Scheduler::PlanWaiting(int32_t& budget) {
  while (budget > 0) {
    Sequence* next = stalled_head_ != nullptr ? stalled_head_ : queue_.Head();
    if (next == nullptr) return;
    if (running() >= options_.max_sequences && !PreemptPaused()) return;
    stalled_head_ = next;
    if (!Enter(*next)) return;
    stalled_head_ = nullptr;
    if (next->state != Sequence::State::kRunning) continue;  // it lacks rows
    Plan(*next, std::min(next->pending(), budget), budget);
  }
}

// The oldest ahead-work only: one after the other is done sooner than all together.
void Scheduler::PlanAhead(int32_t budget) {
  if (ahead_.empty() || running() >= options_.max_sequences) return;
  if (!running_.empty()) budget = std::min(budget, options_.ahead_beside_tokens);
  if (budget <= 0) return;
  Sequence& sequence = *ahead_.front();
  if (sequence.state == Sequence::State::kWaiting) {
    blocks_.Match(sequence);
    sequence.cached_tokens = sequence.computed;
    if (sequence.pending() == 0) sequence.finish = FinishReason::kLength;
    if (sequence.pending() == 0 || sequence.LacksRows()) return Expel(sequence);
    const int32_t lacking = blocks_.Lacking(sequence);
    if (lacking + running() > blocks_.available()) return DropAhead();
    CHECK(blocks_.Take(sequence, lacking));
    sequence.state = Sequence::State::kRunning;
  }
  Plan(sequence, std::min(sequence.pending(), budget), budget);
}

// ------------------------------------------------------------------ who gives way

// Puts the head of the queue into the batch, or outside when its rows are missing; false when it
// must wait.
bool Scheduler::Enter(Sequence& sequence) {
  blocks_.Match(sequence);
  if (sequence.LacksRows()) {
    Expel(sequence);
    return true;
  }
  const int32_t lacking = blocks_.Lacking(sequence);
  // Each that runs may grow by one.
  while (lacking + running() > blocks_.available()) {
    if (FreeSomething(sequence)) continue;
    if (!running_.empty() || sequence.branch.block.empty()) return false;
    // Alone, and the block that it would copy is the one that it lacks.
    blocks_.ReleaseBranch(sequence);
    if (!sequence.LacksRows()) continue;
    Expel(sequence);
    return true;
  }
  CHECK(blocks_.Take(sequence, lacking));
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
  const int32_t ahead_tokens = blocks_.UseFound(sequence);
  if (std::exchange(sequence.entered, true)) return;
  blocks_.Reserve(sequence);
  sequence.generated.reserve(sequence.max_tokens);
  sequence.cached_tokens = sequence.computed;
  sequence.ahead_tokens = ahead_tokens;
  sequence.blocks_reused = sequence.named_blocks;
  counts_.queried_tokens += sequence.prompt_tokens();
  counts_.hit_tokens += sequence.computed;
}

// A block for the pending token; false when the sequence had to go back to the queue for it.
bool Scheduler::Grow(Sequence& sequence) {
  const int32_t lacking = blocks_.Lacking(sequence);
  while (!blocks_.Take(sequence, lacking)) {
    if (FreeSomething(sequence)) continue;
    Sequence* youngest = YoungestToPreempt();
    Preempt(*youngest);
    if (youngest == &sequence) return false;
  }
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
  blocks_.Release(*pinned);
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
  blocks_.KeepTail(sequence);
  blocks_.Release(sequence);
  std::erase(running_, &sequence);
  if (sequence.paused) return Expel(sequence);  // it comes back when its reader does
  sequence.state = Sequence::State::kWaiting;
  queue_.Push(sequence);
}

// All of it, running or not.
void Scheduler::DropAhead() {
  for (Sequence* sequence : ahead_) {
    sequence->finish = FinishReason::kDropped;
    counts_.ahead_dropped_tokens += blocks_.KeepTail(*sequence);
    blocks_.Release(*sequence);
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

// ------------------------------------------------------------------ what became of it

absl::Span<const Progress> Scheduler::Commit(absl::Span<const TokenRun> runs) {
  CHECK(in_step_);
  CHECK_EQ(runs.size(), planned().size());
  in_step_ = false;
  progress_.clear();
  for (size_t s = 0; s < planned().size(); ++s) {
    Sequence& sequence = *planned()[s];
    sequence.computed += builder_.tokens_of(s);
    sequence.computed_tokens += builder_.tokens_of(s);
    const size_t before = sequence.generated.size();
    Append(sequence, runs[s]);
    Settle(sequence);
    progress_.push_back({&sequence, static_cast<int32_t>(sequence.generated.size() - before)});
  }
  return progress_;
}

// What follows from more being computed.
void Scheduler::Settle(Sequence& sequence) {
  if (sequence.ahead()) {
    if (sequence.pending() == 0) sequence.finish = FinishReason::kLength;
  } else {
    // At least one token stays pending: its logits are what the next step samples from.
    sequence.computed = std::min(sequence.computed, sequence.length() - 1);
  }
  sequence.branch = Branch();  // copied
  blocks_.NameFull(sequence);
}

void Scheduler::Distrust(Sequence& sequence) {
  CHECK(in_step_);
  sequence.sound = false;
  blocks_.Forget(sequence);
}

void Scheduler::Abandon() {
  CHECK(in_step_);
  in_step_ = false;
}

void Scheduler::Append(Sequence& sequence, TokenRun run) {
  for (const int32_t id : run) {
    if (IsStop(id)) {
      sequence.finish = FinishReason::kStop;
      return;
    }
    sequence.Append(id);
    if (static_cast<int32_t>(sequence.generated.size()) >= sequence.max_tokens) {
      sequence.finish = FinishReason::kLength;
      return;
    }
  }
}

bool Scheduler::IsStop(int32_t id) const {
  return std::find(options_.stop_ids.begin(), options_.stop_ids.end(), id) !=
         options_.stop_ids.end();
}

}  // namespace tessera::decode
