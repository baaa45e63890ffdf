#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "absl/time/time.h"
#include "kernels/backend.h"
#include "services/decode/engine/engine_observer.h"
#include "services/decode/engine/row_fetcher.h"
#include "services/decode/model/step_model.h"
#include "services/decode/schedule/scheduler.h"

namespace tessera::decode {

struct EngineOptions {
  SchedulerOptions scheduler;  // max_waiting also bounds the requests that wait for rows
  int32_t blocks = 0;          // of the KV cache
  int32_t block_size = 16;     // tokens
  int32_t vocabulary = 0;      // ids at or beyond it are never sampled
  int64_t row_width = 0;       // columns of a picture's row
  RowFetcherOptions fetch;
  int32_t prefix_cache_blocks = 0;  // of `blocks`, at most; 0: nothing is kept
  // A prompt longer than this has rotary frequencies of its own length (dynamic scaling), and
  // shares blocks with prompts of the same length only.
  int32_t rotary_shared_tokens = std::numeric_limits<int32_t>::max();
  int32_t max_ahead = 8;  // ahead-work at a time; more is refused
  // A request whose reader has paused it for so long is aborted.
  absl::Duration slow_client_timeout = absl::Seconds(10);
  EngineObserver observer;
};

// What the engine computes with. Dies in this order: cache, model, backend.
struct EngineDevice {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<StepModel> model;
  kernels::KvCache cache;  // of at least `blocks` blocks
};

}  // namespace tessera::decode
