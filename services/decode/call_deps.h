#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/worker_pool.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/trace/span_exporter.h"
#include "common/text/tokenizer.h"
#include "services/decode/delivery.h"
#include "services/decode/engine/engine.h"
#include "services/decode/prompt/prompt_builder.h"

namespace tessera::decode {

// What calls of Generate and Prefill use; all of it outlives them.
struct CallDeps {
  Engine& engine;
  const PromptBuilder& prompts;
  const text::Tokenizer& tokenizer;
  base::WorkerPool& prompt_threads;  // templates and tokenizing
  Delivery& delivery;                // starts the writes
  base::Clock& clock;
  int64_t row_width = 0;  // columns of a picture's row
  size_t sink_bytes = 0;  // text that a client may leave unread before its answer is paused
  absl::Duration deadline_cap;
  rpc::SpanExporter* spans = nullptr;  // null: spans go nowhere
  std::shared_ptr<rpc::CallTracker> calls = std::make_shared<rpc::CallTracker>();
};

}  // namespace tessera::decode
