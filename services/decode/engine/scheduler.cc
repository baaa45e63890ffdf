#include "services/decode/engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

kernels::SamplingRow RowFor(const Sequence& sequence) {
  const SamplingOptions& options = sequence.sampling;
  kernels::SamplingRow row;
  row.temperature = options.temperature < kLeastTemperature ? 0 : options.temperature;
  row.top_k =
      static_cast<int32_t>(std::min<int64_t>(options.top_k, std::numeric_limits<int32_t>::max()));
  row.top_p = options.top_p;
  row.min_p = options.min_p;
  row.seed = options.seed;
  row.token_index = sequence.generated.size();
  return row;
}

}  // namespace

Scheduler::Scheduler(SchedulerOptions options, BlockPool& pool)
    : options_(std::move(options)), pool_(pool) {
  CHECK_GE(options_.max_sequences, 1);
  CHECK_GE(options_.max_batch_tokens, options_.max_sequences);
  CHECK_GE(options_.context_tokens, 1);
  const size_t sequences = options_.max_sequences;
  const size_t tokens = options_.max_batch_tokens;
  plan_.Clear();
  plan_.ids.reserve(tokens);
  for (auto& axis : plan_.positions) axis.reserve(tokens);
  plan_.rotary_length.reserve(tokens);
  plan_.query_begin.reserve(sequences + 1);
  plan_.adapter.reserve(sequences);
  plan_.logit_tokens.reserve(sequences);
  LayerGroup& group = plan_.groups[0];
  group.slots.reserve(tokens);
  group.context.reserve(sequences);
  group.block_table.reserve(sequences * pool_.BlocksFor(limit_tokens()));
  running_.reserve(sequences);
  planned_.reserve(sequences);
  sampling_.reserve(sequences);
  sampled_sequences_.reserve(sequences);
  progress_.reserve(sequences);
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

absl::Status Scheduler::Add(Sequence& sequence) {
  CHECK_GE(sequence.prompt_tokens(), 1);
  CHECK_GE(sequence.max_tokens, 1);
  int64_t image_tokens = 0;
  for (const PictureRows& picture : sequence.pictures) image_tokens += picture.rows.shape[0];
  RETURN_IF_ERROR(CheckFits(sequence.prompt_tokens(), image_tokens, sequence.max_tokens));
  if (waiting() >= options_.max_waiting) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    absl::StrCat(waiting(), " requests wait already; ask again later")),
        absl::Seconds(1));
  }
  waiting_.push_back(&sequence);
  return absl::OkStatus();
}

bool Scheduler::Remove(Sequence& sequence) {
  CHECK(!in_step_);
  sequence.blocks.clear();
  if (auto it = std::find(running_.begin(), running_.end(), &sequence); it != running_.end()) {
    running_.erase(it);
    return true;
  }
  if (auto it = std::find(waiting_.begin(), waiting_.end(), &sequence); it != waiting_.end()) {
    waiting_.erase(it);
    return true;
  }
  return false;
}

const BatchPlan& Scheduler::Next() {
  CHECK(!in_step_);
  plan_.Clear();
  planned_.clear();
  sampling_.clear();
  sampled_sequences_.clear();
  int32_t budget = options_.max_batch_tokens;
  for (Sequence* sequence : running_) {
    CHECK(sequence->finish == FinishReason::kNone);
    if (budget == 0) break;
    const int32_t tokens = std::min(sequence->pending(), budget);
    Plan(*sequence, tokens);
    budget -= tokens;
  }
  while (budget > 0 && !waiting_.empty() && Enter(*waiting_.front())) {
    Sequence& sequence = *waiting_.front();
    waiting_.pop_front();
    running_.push_back(&sequence);
    const int32_t tokens = std::min(sequence.pending(), budget);
    Plan(sequence, tokens);
    budget -= tokens;
  }
  PlanTable();
  in_step_ = !planned_.empty();
  return plan_;
}

// Takes what the sequence needs to run to its end; false when that is not there.
bool Scheduler::Enter(Sequence& sequence) {
  if (running() >= options_.max_sequences) return false;
  const int32_t blocks = pool_.BlocksFor(sequence.MostTokens());
  if (blocks > pool_.free()) return false;
  sequence.blocks.reserve(blocks);
  sequence.generated.reserve(sequence.max_tokens);
  CHECK(pool_.Take(blocks, sequence.blocks));
  return true;
}

void Scheduler::Plan(Sequence& sequence, int32_t tokens) {
  PlanRows(sequence, tokens);
  PlanTokens(sequence, tokens);
  const bool wants_logits = tokens == sequence.pending();
  if (wants_logits) {
    plan_.logit_tokens.push_back(static_cast<int32_t>(plan_.tokens()) - 1);
    sampling_.push_back(RowFor(sequence));
    sampled_sequences_.push_back(static_cast<int32_t>(planned_.size()));
  }
  plan_.query_begin.push_back(static_cast<int32_t>(plan_.tokens()));
  plan_.adapter.push_back(0);
  plan_.groups[0].context.push_back(sequence.computed + tokens);
  planned_.push_back(&sequence);
}

// The pending tokens [computed, computed + tokens).
void Scheduler::PlanTokens(const Sequence& sequence, int32_t tokens) {
  const int32_t block_size = pool_.block_size();
  for (int32_t place = sequence.computed; place < sequence.computed + tokens; ++place) {
    plan_.ids.push_back(sequence.TokenAt(place));
    for (auto& axis : plan_.positions) axis.push_back(place);
    plan_.rotary_length.push_back(std::max(sequence.prompt_tokens(), place + 1));
    const int32_t block = sequence.blocks[place / block_size].id();
    plan_.groups[0].slots.push_back(block * block_size + place % block_size);
  }
}

// The rows of pictures within the pending tokens [computed, computed + tokens), which begin at the
// plan's next token.
void Scheduler::PlanRows(const Sequence& sequence, int32_t tokens) {
  if (!sequence.prefilling()) return;
  const int32_t chunk_begin = sequence.computed;
  const int32_t chunk_end = chunk_begin + tokens;
  for (const PictureRows& picture : sequence.pictures) {
    const int32_t count = static_cast<int32_t>(picture.rows.shape[0]);
    const int32_t begin = std::max(chunk_begin, picture.first_token);
    const int32_t end = std::min(chunk_end, picture.first_token + count);
    if (begin >= end) continue;
    const int64_t hidden = picture.rows.shape[1];
    const size_t row_bytes = static_cast<size_t>(hidden) * SizeOf(picture.rows.dtype);
    RowRange range;
    range.first_token = static_cast<int32_t>(plan_.tokens()) + begin - chunk_begin;
    range.rows.dtype = picture.rows.dtype;
    range.rows.shape = {end - begin, hidden};
    range.rows.data = picture.rows.data + row_bytes * (begin - picture.first_token);
    plan_.rows.push_back(range);
  }
}

// The table is as wide as the longest context of the plan needs; narrower rows end in zeros that
// nothing reads.
void Scheduler::PlanTable() {
  LayerGroup& group = plan_.groups[0];
  for (const int32_t context : group.context) {
    group.table_width = std::max<int64_t>(group.table_width, pool_.BlocksFor(context));
  }
  for (size_t s = 0; s < planned_.size(); ++s) {
    const int64_t used = pool_.BlocksFor(group.context[s]);
    for (int64_t i = 0; i < group.table_width; ++i) {
      group.block_table.push_back(i < used ? planned_[s]->blocks[i].id() : 0);
    }
  }
}

absl::Span<const Progress> Scheduler::Commit(absl::Span<const TokenRun> runs) {
  CHECK(in_step_);
  CHECK_EQ(runs.size(), planned_.size());
  in_step_ = false;
  progress_.clear();
  for (size_t s = 0; s < planned_.size(); ++s) {
    Sequence& sequence = *planned_[s];
    sequence.computed += plan_.query_begin[s + 1] - plan_.query_begin[s];
    const size_t before = sequence.generated.size();
    Append(sequence, runs[s]);
    // At least one token stays pending: its logits are what the next step samples from.
    sequence.computed = std::min(sequence.computed, sequence.length() - 1);
    if (!sequence.prefilling()) sequence.pictures.clear();
    progress_.push_back({&sequence, static_cast<int32_t>(sequence.generated.size() - before)});
  }
  return progress_;
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
    sequence.generated.push_back(id);
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
