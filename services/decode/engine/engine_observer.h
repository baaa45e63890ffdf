#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/decode/engine/token_sink.h"

namespace tessera::decode {

// What one step of the engine did.
struct StepReport {
  int64_t prompt_tokens = 0;  // of prompts
  int64_t decode_tokens = 0;  // of answers that go on
  absl::Duration duration;    // planning to tokens handed over
};

// Told by the engine's thread, so neither waits nor allocates. Empty: not told.
struct EngineObserver {
  std::function<void(const StepReport&)> stepped;
  // A question has ended; ahead-work is no question.
  std::function<void(const absl::Status&, const Outcome&)> answered;
};

}  // namespace tessera::decode
