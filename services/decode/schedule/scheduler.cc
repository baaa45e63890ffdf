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
      pool_(pool),
      cache_(cache),
      hasher_(pool.block_size()),
      queue_(options_.tenant_quantum),
      builder_({.tokens = options_.max_batch_tokens,
                .sequences = options_.max_sequences,
                .blocks = pool.BlocksFor(limit_tokens()),
                .block_size = pool.block_size()}) {
  CHECK_GE(options_.max_sequences, 1);
  CHECK_GE(options_.max_batch_tokens, options_.max_sequences);
  CHECK_GE(options_.context_tokens, 1);
  CHECK_GE(options_.tenant_quantum, 1);
  running_.reserve(options_.max_sequences);
  progress_.reserve(options_.max_sequences);
  block_ids_.reserve(pool_.block_size());
}

int64_t Scheduler::limit_tokens() const {
  // The last token of an answer needs no place in the pool.
  const int64_t pool_tokens = int64_t{pool_.total()} * pool_.block_size() + 1;
  return std::min<int64_t>(options_.context_tokens, pool_tokens);
}

absl::Status Scheduler::CheckFits(int64_t prompt_tokens, int64_t image_tokens,
                                  int64_t max_tokens) const {
  if (prompt_tokens + max_tokens <= limit_tokens()) return absl::OkStatus();
  return base::BadField(
      "messages", "CONTEXT_TOO_LONG",
      absl::StrCat("the prompt has ", prompt_tokens, " tokens, ", image_tokens,
                   " of them rows of pictures, and ", max_tokens,
                   " of answer are asked for; prompt and answer together may have ", limit_tokens(),
                   " (context ", options_.context_tokens, ", KV cache ",
                   int64_t{pool_.total()} * pool_.block_size(),
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
  Match(sequence);
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
  const int32_t lost = KeepTail(sequence);
  if (sequence.ahead()) counts_.ahead_dropped_tokens += lost;
  if (sequence.entered) {  // used until now
    cache_.Use(absl::MakeConstSpan(sequence.blocks).first(sequence.named_blocks));
  }
  Release(sequence);
  if (held_ == &sequence) held_ = nullptr;
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
    Sequence* next = held_ != nullptr ? held_ : queue_.Head();
    if (next == nullptr) return;
    if (running() >= options_.max_sequences && !PreemptPaused()) return;
    held_ = next;
    if (!Enter(*next)) return;
    held_ = nullptr;
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
    Match(sequence);
    sequence.cached_tokens = sequence.computed;
    if (sequence.pending() == 0) sequence.finish = FinishReason::kLength;
    if (sequence.pending() == 0 || sequence.LacksRows()) return Expel(sequence);
    const int32_t blocks =
        pool_.BlocksFor(sequence.length()) - static_cast<int32_t>(sequence.blocks.size());
    if (blocks + running() > pool_.free() + pool_.idle()) return DropAhead();
    CHECK(TakeBlocks(sequence, blocks));
    sequence.state = Sequence::State::kRunning;
  }
  Plan(sequence, std::min(sequence.pending(), budget), budget);
}

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
  NameBlocks(sequence);
}

void Scheduler::Distrust(Sequence& sequence) {
  CHECK(in_step_);
  sequence.sound = false;
  // What it found when it came was sound for others before.
  const size_t found = std::min(sequence.blocks_reused, sequence.named_blocks);
  cache_.Forget(absl::MakeConstSpan(sequence.blocks).first(sequence.named_blocks).subspan(found));
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
