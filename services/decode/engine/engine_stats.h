#pragma once

#include <cstdint>

namespace tessera::decode {

// What an engine has done since it started, and what it holds now. A copy: plain numbers.
struct EngineStats {
  // Now.
  int64_t running = 0;        // sequences in the batch
  int64_t waiting = 0;        // questions, not in the batch: for room, or for rows
  int64_t ahead = 0;          // work ahead of questions, which gives way to them
  int64_t outside = 0;        // questions that no step can compute: they wait for rows or a reader
  int64_t blocks_used = 0;    // KV blocks of requests
  int64_t blocks_ahead = 0;   // of these, of work ahead alone
  int64_t blocks_cached = 0;  // KV blocks that only the prefix cache holds
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
  int64_t preemptions = 0;
  // Tokens.
  int64_t prefix_queries = 0;  // looked up in the prefix cache
  int64_t prefix_hits = 0;     // of these, found
  int64_t prefix_evicted = 0;
  int64_t ahead_used = 0;  // computed ahead, then found by a question
  int64_t ahead_wasted = 0;
};

// Whether an engine gets on, as ops::Watchdog takes it.
struct EngineProgress {
  bool has_work = false;  // a question that a step could compute
  int64_t steps = 0;
};

}  // namespace tessera::decode
