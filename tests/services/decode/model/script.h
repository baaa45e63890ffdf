#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/tensor/tensor.h"
#include "tests/support/golden_case.h"

// What is fed to a decoder, and in which steps.
namespace tessera::testing {

// One sequence with everything it will ever be fed.
struct Script {
  std::vector<int32_t> ids;        // prompt, then forced tokens; -1 where a row stands
  std::vector<int32_t> positions;  // rotary, [ids]
  int64_t prompt = 0;              // the first ids that are the prompt
  Tensor rows;                     // [number of -1 in ids, hidden]

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  // Forces `more` behind what is there, at the positions that follow.
  void Append(absl::Span<const int32_t> more);
};

// `count` further tokens of a sequence; a step is several of them.
struct Chunk {
  int sequence = 0;
  int64_t count = 0;
};
using Steps = std::vector<std::vector<Chunk>>;

// The prompt at once, then token by token.
Steps Alone(const Script& script);
// Everything in one chunk.
Steps AtOnce(const Script& script);
// Two chunks, the second from token `border` on. REQUIRES: 0 < border < size.
Steps CutAt(const Script& script, int64_t border);
// Chunks of `size` through prompt and continuation.
Steps InChunks(const Script& script, int64_t size);
// All together: sequence i begins at step i, its prompt goes in chunks of 5 + 3i tokens, then it
// decodes beside others that still prefill.
Steps Mixed(const std::vector<Script>& scripts);

// The script of a golden case: prompt with rows as `dtype`, then its greedy ids but the last.
// nullopt when the file gives no rows for its pictures.
std::optional<Script> ScriptOf(const GoldenModel& model, const GoldenCase& golden, DType dtype);

// The index of the largest value, the lowest of equals.
int32_t ArgMax(absl::Span<const float> row);

// Equal to the bit.
bool SameBits(absl::Span<const float> a, absl::Span<const float> b);

}  // namespace tessera::testing
