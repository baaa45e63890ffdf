#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "services/decode/cache/block_hash.h"
#include "services/decode/cache/block_pool.h"
#include "services/decode/cache/prefix_cache.h"
#include "services/decode/cache/prompt_picture.h"
#include "services/decode/schedule/sampling_options.h"

namespace tessera::decode {

using SequenceId = uint64_t;

enum class FinishReason {
  kNone,
  kStop,
  kLength,   // max_tokens; of ahead-work: all of it is computed
  kDropped,  // ahead-work that gave way
};

// Who goes first.
enum class Priority {
  kQuestion,
  kAhead,  // nobody waits for it: computed where there is room, dropped when a question waits
};

// Rows of one picture in host memory.
struct PictureRows {
  TensorView rows;                    // [rows, hidden] f16 or f32; no data: not here
  std::shared_ptr<const void> owner;  // of the memory behind `rows`

  bool here() const { return rows.data != nullptr; }
};

// One request as the scheduler sees it. Plain data of the engine's thread.
//
// Of its length() tokens the first `computed` have their keys and values in `blocks`; the others
// are pending. Sampling appends one; so a running sequence has exactly one pending token, and one
// in prefill, or one that was preempted, has more.
struct Sequence {
  // --- set by who makes it ---
  SequenceId id = 0;  // ascending by arrival
  std::string tenant;
  Priority priority = Priority::kQuestion;
  std::vector<int32_t> prompt;          // ids; -1 where a row of a picture stands
  std::vector<PromptPicture> pictures;  // ascending; cover exactly the -1 of the prompt
  BlockHash root{};                     // parent of the first block
  std::vector<BlockHash> chain;         // names of all full blocks of the prompt
  SamplingOptions sampling;
  int32_t max_tokens = 1;  // of the answer; at least 1, or 0 for ahead-work

  // --- set by who fetches ---
  // One per picture. Kept to the end of the answer: a preempted sequence computes them again.
  std::vector<PictureRows> rows;

  // --- kept by the scheduler ---
  enum class State {
    kNew,      // not known to the scheduler
    kOutside,  // known; its blocks are pinned, its rows are missing
    kWaiting,  // for a place in the batch
    kRunning,  // in the batch
  };
  State state = State::kNew;
  bool paused = false;             // its reader is slow: not planned
  std::vector<int32_t> generated;  // the answer so far, without its stop token
  std::vector<Block> blocks;
  int32_t named_blocks = 0;  // the first of `blocks` that the prefix cache has
  // A block that begins like the one behind the named ones: copied before the first step. Its
  // tokens count as computed.
  Branch branch;
  int32_t computed = 0;
  FinishReason finish = FinishReason::kNone;
  bool sound = true;  // false: the device computed NaN for it; its blocks are nobody else's
  std::vector<kernels::SeenToken> seen;  // where penalties ask for it

  // --- what it cost, kept by the scheduler ---
  bool entered = false;         // has been in the batch
  int32_t cached_tokens = 0;    // not computed when it first entered
  int32_t ahead_tokens = 0;     // of these, computed by ahead-work
  int32_t computed_tokens = 0;  // in all steps
  int32_t blocks_reused = 0;    // when it first entered
  int32_t blocks_taken = 0;
  int32_t preemptions = 0;

  int32_t prompt_tokens() const { return static_cast<int32_t>(prompt.size()); }
  int32_t length() const { return prompt_tokens() + static_cast<int32_t>(generated.size()); }
  int32_t pending() const { return length() - computed; }
  bool ahead() const { return priority == Priority::kAhead; }
  bool prefilling() const { return computed < prompt_tokens(); }
  int32_t TokenAt(int32_t place) const {
    return place < prompt_tokens() ? prompt[place] : generated[place - prompt_tokens()];
  }
  // A token of the answer.
  void Append(int32_t id) {
    generated.push_back(id);
    if (!sampling.penalizes()) return;
    for (kernels::SeenToken& token : seen) {
      if (token.id == id) {
        ++token.answer_count;
        return;
      }
    }
    seen.push_back({id, 1});
  }
  // Whether picture `i` has rows that are still to be computed and are not here.
  bool LacksRows(size_t i) const { return pictures[i].end_token() > computed && !rows[i].here(); }
  bool LacksRows() const {
    for (size_t i = 0; i < pictures.size(); ++i) {
      if (LacksRows(i)) return true;
    }
    return false;
  }
};

}  // namespace tessera::decode
