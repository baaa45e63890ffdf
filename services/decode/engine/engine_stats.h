#pragma once

#include <cstdint>

namespace tessera::decode {

// What an engine has done since it started, and what it holds now. A copy: plain numbers.
struct EngineStats {
  // Now.
  int64_t running = 0;      // sequences in the batch
  int64_t waiting = 0;      // accepted, not in the batch: for room, or for rows
  int64_t blocks_used = 0;  // KV blocks
  int64_t blocks_total = 0;
  // Since the start.
  int64_t steps = 0;
  int64_t prompt_tokens = 0;      // computed
  int64_t generation_tokens = 0;  // sampled, stop tokens not counted
  int64_t finished_stop = 0;
  int64_t finished_length = 0;
  int64_t finished_abort = 0;  // cancelled, past its deadline, slow client, draining
  int64_t finished_error = 0;
  int64_t nonfinite_logits = 0;  // of finished_error
  int64_t fetched_bytes = 0;     // rows read from the store
};

}  // namespace tessera::decode
