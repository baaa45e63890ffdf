#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "services/decode/schedule/sequence.h"

namespace tessera::decode {

// Where the rows of a picture came from.
enum class RowTier {
  kNone,
  kPrefixKv,  // not needed
  kLocal,     // memory of this process
  kStore,     // shared with others
  kOrigin,    // the vision replica that made them
};

struct PictureOutcome {
  RowTier tier = RowTier::kNone;
  int32_t rows = 0;
  size_t bytes_moved = 0;  // of rows, to the decoder
};

// What one answer cost. Times are 0 where the stage did not happen.
struct Outcome {
  FinishReason finish = FinishReason::kNone;  // set when the status is OK
  int32_t prompt_tokens = 0;
  int32_t image_tokens = 0;     // of prompt_tokens
  int32_t cached_tokens = 0;    // of prompt_tokens; found in the prefix cache
  int32_t ahead_tokens = 0;     // of cached_tokens; ahead-work had computed them
  int32_t computed_tokens = 0;  // in all steps, recomputed ones counted again
  int32_t output_tokens = 0;    // the stop token not counted
  absl::Duration queue;       // arrival to first step, without `fetch` and without waiting for rows
  absl::Duration fetch;       // reading records
  absl::Duration prefill;     // first step to first token
  absl::Duration generation;  // first token to last
  absl::Time first_fetch = absl::InfinitePast();  // its begin, where `fetch` is not 0
  absl::Time first_step = absl::InfinitePast();   // its begin, where there was one
  std::vector<PictureOutcome> pictures;           // in the order of the prompt
  int32_t kv_blocks_new = 0;
  int32_t kv_blocks_reused = 0;
  int32_t preemptions = 0;
};

// A request that the engine has accepted.
struct AcceptedRequest {
  SequenceId id = 0;  // what Cancel and RowsReady take
  int32_t prompt_tokens = 0;
  int32_t blocks = 0;  // KV blocks it will take at most
};

enum class SinkAnswer {
  kContinue,
  kStop,   // enough: the answer ends here, well
  kPause,  // taken, but the reader does not keep up: no more until Engine::Resume
};

// Takes what the engine makes for one request. OnAccepted is called by Submit, all else by the
// engine's thread: none may block. OnEnd comes exactly once, last.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void OnAccepted(const AcceptedRequest& accepted) = 0;
  // Records that no tier has; `pictures` are positions in the prompt's pictures. The request waits
  // for Engine::RowsReady.
  virtual void OnNeedRows(absl::Span<const int32_t> pictures) = 0;
  // Tokens to append to the answer, at least one, and how each was chosen.
  virtual SinkAnswer OnTokens(absl::Span<const int32_t> ids,
                              absl::Span<const kernels::Sampled> sampled) = 0;
  virtual void OnEnd(const absl::Status& status, const Outcome& outcome) = 0;
};

}  // namespace tessera::decode
