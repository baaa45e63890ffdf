#include "services/decode/schedule/plan_builder.h"

#include <algorithm>
#include <limits>

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
  row.repetition_penalty = options.repetition_penalty;
  row.frequency_penalty = options.frequency_penalty;
  row.presence_penalty = options.presence_penalty;
  row.seen = sequence.seen;
  row.bias = options.logit_bias;
  return row;
}

}  // namespace

PlanBuilder::PlanBuilder(const Limits& limits) : block_size_(limits.block_size) {
  const size_t sequences = limits.sequences;
  const size_t tokens = limits.tokens;
  Clear();
  plan_.ids.reserve(tokens);
  for (auto& axis : plan_.positions) axis.reserve(tokens);
  plan_.rotary_length.reserve(tokens);
  plan_.query_begin.reserve(sequences + 1);
  plan_.adapter.reserve(sequences);
  plan_.logit_tokens.reserve(sequences);
  LayerGroup& group = plan_.groups[0];
  group.slots.reserve(tokens);
  group.context.reserve(sequences);
  group.copies.reserve(sequences);
  group.block_table.reserve(sequences * limits.blocks);
  planned_.reserve(sequences);
  sampling_.reserve(sequences);
  sampled_sequences_.reserve(sequences);
}

void PlanBuilder::Clear() {
  plan_.Clear();
  planned_.clear();
  sampling_.clear();
  sampled_sequences_.clear();
}

bool PlanBuilder::Has(const Sequence& sequence) const {
  return std::find(planned_.begin(), planned_.end(), &sequence) != planned_.end();
}

void PlanBuilder::Add(Sequence& sequence, int32_t tokens) {
  if (!sequence.branch.block.empty()) {
    plan_.groups[0].copies.push_back(
        {sequence.branch.block.id(), sequence.blocks[sequence.named_blocks].id()});
  }
  AddRows(sequence, tokens);
  AddTokens(sequence, tokens);
  if (tokens == sequence.pending() && !sequence.ahead()) {
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
void PlanBuilder::AddTokens(const Sequence& sequence, int32_t tokens) {
  for (int32_t place = sequence.computed; place < sequence.computed + tokens; ++place) {
    plan_.ids.push_back(sequence.TokenAt(place));
    for (auto& axis : plan_.positions) axis.push_back(place);
    plan_.rotary_length.push_back(std::max(sequence.prompt_tokens(), place + 1));
    const int32_t block = sequence.blocks[place / block_size_].id();
    plan_.groups[0].slots.push_back(block * block_size_ + place % block_size_);
  }
}

// The rows of pictures within the pending tokens [computed, computed + tokens), which begin at the
// plan's next token.
void PlanBuilder::AddRows(const Sequence& sequence, int32_t tokens) {
  const int32_t chunk_begin = sequence.computed;
  const int32_t chunk_end = chunk_begin + tokens;
  for (size_t i = 0; i < sequence.pictures.size(); ++i) {
    const PromptPicture& picture = sequence.pictures[i];
    const int32_t begin = std::max(chunk_begin, picture.first_token);
    const int32_t end = std::min(chunk_end, picture.end_token());
    if (begin >= end) continue;
    const TensorView& rows = sequence.rows[i].rows;
    const int64_t hidden = rows.shape[1];
    const size_t row_bytes = static_cast<size_t>(hidden) * SizeOf(rows.dtype);
    RowRange range;
    range.first_token = static_cast<int32_t>(plan_.tokens()) + begin - chunk_begin;
    range.rows.dtype = rows.dtype;
    range.rows.shape = {end - begin, hidden};
    range.rows.data = rows.data + row_bytes * (begin - picture.first_token);
    plan_.rows.push_back(range);
  }
}

// The table is as wide as the longest context of the plan needs; narrower rows end in zeros that
// nothing reads.
void PlanBuilder::PlanTable() {
  LayerGroup& group = plan_.groups[0];
  const auto blocks_for = [this](int32_t tokens) {
    return (tokens + block_size_ - 1) / block_size_;
  };
  for (const int32_t context : group.context) {
    group.table_width = std::max<int64_t>(group.table_width, blocks_for(context));
  }
  for (size_t s = 0; s < planned_.size(); ++s) {
    const int64_t used = blocks_for(group.context[s]);
    for (int64_t i = 0; i < group.table_width; ++i) {
      group.block_table.push_back(i < used ? planned_[s]->blocks[i].id() : 0);
    }
  }
}

}  // namespace tessera::decode
