#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/tensor/tensor.h"
#include "services/decode/engine/block_pool.h"
#include "services/decode/engine/sampling_options.h"

namespace tessera::decode {

using SequenceId = uint64_t;

enum class FinishReason { kNone, kStop, kLength };

// A picture's rows in host memory, kept alive until the prompt is computed.
struct PictureRows {
  int32_t first_token = 0;            // place in the prompt
  TensorView rows;                    // [count, hidden] f16 or f32
  std::shared_ptr<const void> owner;  // of the memory behind `rows`
};

// One request as the scheduler sees it. Plain data of the engine's thread.
//
// Of its length() tokens the first `computed` have their keys and values in `blocks`; the others
// are pending. Sampling appends one; so a running sequence has exactly one pending token, and one
// in prefill has more.
struct Sequence {
  // --- set by who adds it ---
  SequenceId id = 0;
  std::vector<int32_t> prompt;        // ids; -1 where a row of a picture stands
  std::vector<PictureRows> pictures;  // ascending; cover exactly the -1 of the prompt
  SamplingOptions sampling;
  int32_t max_tokens = 1;  // of the answer; at least 1

  // --- kept by the scheduler ---
  std::vector<int32_t> generated;  // the answer so far, without its stop token
  std::vector<Block> blocks;
  int32_t computed = 0;
  FinishReason finish = FinishReason::kNone;

  int32_t prompt_tokens() const { return static_cast<int32_t>(prompt.size()); }
  int32_t length() const { return prompt_tokens() + static_cast<int32_t>(generated.size()); }
  int32_t pending() const { return length() - computed; }
  bool prefilling() const { return computed < prompt_tokens(); }
  int32_t TokenAt(int32_t place) const {
    return place < prompt_tokens() ? prompt[place] : generated[place - prompt_tokens()];
  }
  // Tokens whose keys are ever written: the last token of the answer needs none.
  int64_t MostTokens() const { return int64_t{prompt_tokens()} + max_tokens - 1; }
};

}  // namespace tessera::decode
