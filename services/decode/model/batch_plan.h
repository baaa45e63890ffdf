#pragma once

#include <cstdint>
#include <vector>

#include "common/tensor/tensor.h"
#include "kernels/backend.h"

// What one step of the decoder computes. Filled by the scheduler, read by the StepModel; plain
// data, reused from step to step so that a warm step allocates nothing.
namespace tessera::decode {

// Rows of a picture that stand at consecutive tokens of the step.
struct RowRange {
  int32_t first_token = 0;  // index into BatchPlan::ids
  TensorView rows;          // [count, hidden] f16 or f32 host memory; alive until the step is done
};

// Where the layers of one group find their keys. One group today; sliding windows bring more.
struct LayerGroup {
  std::vector<int32_t> slots;        // [tokens] block * block_size + place, where K and V go
  std::vector<int32_t> context;      // [sequences] keys that exist after this step's are written
  std::vector<int32_t> block_table;  // [sequences, table_width]
  // Blocks to be copied before anything is written: who shares the beginning of another's block
  // goes on in a copy of it.
  std::vector<kernels::BlockCopy> copies;
  int64_t table_width = 0;
};

struct BatchPlan {
  // --- per token, sequences one behind the other ---
  std::vector<int32_t> ids;            // -1 where a row of a picture stands
  std::vector<int32_t> positions[3];   // rotary positions: three equal ones for plain rotary. Not
                                       // the place in the KV cache, which `slots` says.
  std::vector<int32_t> rotary_length;  // what dynamic rotary scaling takes as the length: the
                                       // larger of the prompt's length and this position + 1
  std::vector<RowRange> rows;

  // --- per sequence ---
  std::vector<int32_t> query_begin;  // [sequences + 1], cumulative
  std::vector<int32_t> adapter;      // [sequences], 0 today
  std::vector<LayerGroup> groups;    // at least one

  // Tokens whose logits are wanted, ascending; several per sequence are allowed.
  std::vector<int32_t> logit_tokens;

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  int64_t sequences() const { return static_cast<int64_t>(query_begin.size()) - 1; }
  // Empties every vector and keeps its memory.
  void Clear() {
    ids.clear();
    for (auto& axis : positions) axis.clear();
    rotary_length.clear();
    rows.clear();
    query_begin.assign(1, 0);
    adapter.clear();
    if (groups.empty()) groups.resize(1);
    for (LayerGroup& group : groups) {
      group.slots.clear();
      group.context.clear();
      group.block_table.clear();
      group.copies.clear();
      group.table_width = 0;
    }
    logit_tokens.clear();
  }
};

}  // namespace tessera::decode
