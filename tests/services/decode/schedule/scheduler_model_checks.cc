// What must hold in every step of SchedulerModel.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/services/decode/schedule/scheduler_model.h"

namespace tessera::decode {

// Each that decodes has its token in this step, or had to give way.
void SchedulerModel::CheckDecoding(const std::vector<Known*>& decoding) {
  for (const Known* known : decoding) {
    if (known->sequence.state != Sequence::State::kRunning) continue;
    const auto planned = scheduler_.planned();
    ASSERT_NE(std::find(planned.begin(), planned.end(), &known->sequence), planned.end());
  }
}

// Nobody came in before one of its tenant that asked before it and waited no less.
void SchedulerModel::CheckOrder(const std::vector<Known*>& waited) {
  for (const Known* in : waited) {
    if (in->sequence.state != Sequence::State::kRunning) continue;
    for (const Known* out : waited) {
      if (out->sequence.state != Sequence::State::kWaiting || out->sequence.entered) continue;
      ASSERT_FALSE(out->sequence.tenant == in->sequence.tenant &&
                   out->sequence.id < in->sequence.id && out->enqueued < in->enqueued);
    }
  }
}

void SchedulerModel::CheckSequence(size_t s) {
  const BatchPlan& plan = scheduler_.plan();
  const Known& known = *Of(scheduler_.planned()[s]);
  const Sequence& sequence = known.sequence;
  ASSERT_FALSE(sequence.paused);
  ASSERT_EQ(sequence.state, Sequence::State::kRunning);
  const int32_t tokens = plan.query_begin[s + 1] - plan.query_begin[s];
  ASSERT_GE(tokens, 1);
  ASSERT_LE(tokens, sequence.pending());
  const LayerGroup& group = plan.groups[0];
  ASSERT_EQ(group.context[s], sequence.computed + tokens);
  for (int i = 0; i < tokens; ++i) {
    const int32_t token = plan.query_begin[s] + i;
    const int32_t place = sequence.computed + i;
    ASSERT_EQ(plan.ids[token], sequence.TokenAt(place));
    ASSERT_EQ(plan.positions[0][token], place);
    ASSERT_EQ(plan.rotary_length[token], std::max(sequence.prompt_tokens(), place + 1));
    const int32_t block = group.block_table[s * group.table_width + place / kModelBlock];
    ASSERT_EQ(group.slots[token], block * kModelBlock + place % kModelBlock);
    ASSERT_EQ(pool_.references(block), 1) << "somebody else sees what is written";
  }
  const bool wants = tokens == sequence.pending() && !sequence.ahead();
  const auto& logits = plan.logit_tokens;
  ASSERT_EQ(std::count(logits.begin(), logits.end(), plan.query_begin[s + 1] - 1), wants);
  ASSERT_NO_FATAL_FAILURE(CheckRows(s, known));
}

// Each -1 of the plan has the row of its place.
void SchedulerModel::CheckRows(size_t s, const Known& known) {
  const BatchPlan& plan = scheduler_.plan();
  const Sequence& sequence = known.sequence;
  int32_t expected = 0;
  for (int32_t t = plan.query_begin[s]; t < plan.query_begin[s + 1]; ++t)
    expected += plan.ids[t] < 0;
  for (const RowRange& range : plan.rows) {
    if (range.first_token < plan.query_begin[s] || range.first_token >= plan.query_begin[s + 1]) {
      continue;
    }
    for (int32_t r = 0; r < range.rows.shape[0]; ++r) {
      const int32_t token = range.first_token + r;
      ASSERT_EQ(plan.ids.at(token), -1);
      const int32_t place = sequence.computed + token - plan.query_begin[s];
      const auto picture = std::find_if(sequence.pictures.begin(), sequence.pictures.end(),
                                        [place](const PromptPicture& p) {
                                          return p.first_token <= place && place < p.end_token();
                                        });
      ASSERT_NE(picture, sequence.pictures.end());
      ASSERT_EQ(reinterpret_cast<const float*>(range.rows.data)[r],
                RowNumber(PictureOf(picture->key), place - picture->first_token));
      --expected;
    }
  }
  ASSERT_EQ(expected, 0) << "a token without its row, or with two";
}

// Blocks are copied from what the cache keeps to what only one sequence holds.
void SchedulerModel::Copy() {
  const LayerGroup& group = scheduler_.plan().groups[0];
  for (const kernels::BlockCopy& copy : group.copies) {
    ASSERT_GE(pool_.references(copy.from), 2) << "the cache, and who copies";
    ASSERT_EQ(pool_.references(copy.to), 1);
    std::copy_n(slots_.begin() + copy.from * kModelBlock, kModelBlock,
                slots_.begin() + copy.to * kModelBlock);
    ++seen_.copies;
  }
}

// What the device does: all copies, then all writes, then all reads.
void SchedulerModel::Write() {
  const BatchPlan& plan = scheduler_.plan();
  ASSERT_NO_FATAL_FAILURE(Copy());
  std::set<int32_t> written;
  for (int64_t s = 0; s < plan.sequences(); ++s) {
    const Known& known = *Of(scheduler_.planned()[s]);
    for (int32_t t = plan.query_begin[s]; t < plan.query_begin[s + 1]; ++t) {
      const int32_t slot = plan.groups[0].slots[t];
      ASSERT_TRUE(written.insert(slot).second);
      slots_.at(slot) = known.marks.at(plan.positions[0][t]);
    }
  }
  for (int64_t s = 0; s < plan.sequences(); ++s) ASSERT_NO_FATAL_FAILURE(CheckContext(s));
}

// Each place of the context holds this sequence's own token, behind its own tokens.
void SchedulerModel::CheckContext(size_t s) {
  const LayerGroup& group = scheduler_.plan().groups[0];
  const Known& known = *Of(scheduler_.planned()[s]);
  for (int32_t place = 0; place < group.context[s]; ++place) {
    const int32_t block = group.block_table[s * group.table_width + place / kModelBlock];
    ASSERT_EQ(slots_.at(block * kModelBlock + place % kModelBlock), known.marks.at(place))
        << "place " << place << " of sequence " << known.sequence.id;
  }
}

// Every block is free, held by the cache alone, or held by sequences; no reference is lost.
void SchedulerModel::CheckCounts() {
  std::map<int32_t, int32_t> holders;
  int32_t running = 0;
  int32_t waiting = 0;
  for (const auto& known : known_) {
    const Sequence& sequence = known->sequence;
    running += sequence.state == Sequence::State::kRunning && !sequence.ahead();
    waiting += sequence.state == Sequence::State::kWaiting && !sequence.ahead();
    for (const Block& block : sequence.blocks) ++holders[block.id()];
    if (!sequence.branch.block.empty()) ++holders[sequence.branch.block.id()];
  }
  ASSERT_EQ(scheduler_.running(), running);
  ASSERT_EQ(scheduler_.waiting(), waiting);
  int32_t cached = 0;
  for (int32_t block = 0; block < pool_.total(); ++block) {
    const auto held = holders.find(block);
    const int32_t more = pool_.references(block) - (held == holders.end() ? 0 : held->second);
    ASSERT_TRUE(more == 0 || more == 1);
    cached += more;
  }
  ASSERT_EQ(cached, cache_.blocks());
  ASSERT_EQ(pool_.free() + pool_.idle() + static_cast<int32_t>(holders.size()), pool_.total());
}

}  // namespace tessera::decode
