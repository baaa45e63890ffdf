#pragma once

#include <cstdint>
#include <vector>

#include "services/decode/schedule/scheduler.h"
#include "tools/schedule/step_time.h"
#include "tools/schedule/trace.h"

namespace tessera::tools {

struct SimulatorOptions {
  decode::SchedulerOptions scheduler;
  int32_t blocks = 0;
  int32_t block_size = 16;          // tokens
  int32_t prefix_cache_blocks = 0;  // at most `blocks`
};

// One turn of a session, in simulated seconds since the start.
struct SimulatedTurn {
  int32_t session = 0;
  int32_t turn = 0;
  bool refused = false;  // it can never fit; the session ends with it
  double arrival = 0;
  double first_token = 0;
  double end = 0;
  int32_t steps_to_first_token = 0;  // that began after its arrival
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t preemptions = 0;
  std::vector<double> gaps;  // between tokens
};

struct Simulated {
  std::vector<SimulatedTurn> turns;  // in the order of their ends
  double seconds = 0;                // until the last end
  int64_t steps = 0;
  int64_t computed_tokens = 0;
  int64_t answer_tokens = 0;
  decode::SchedulerCounts counts;
  // Real time of the scheduler and the caches, per step.
  std::vector<double> bookkeeping_seconds;
};

// Runs the decode service's own Scheduler, BlockPool and PrefixCache over a trace; only the device
// is made up: a step takes what `time` says. A session's next turn comes when its last one has been
// answered and thought about, with the whole history as its prompt. Pictures are encoded one after
// the other beside decoding. Pure but for bookkeeping_seconds.
Simulated Simulate(const SimulatorOptions& options, const StepTime& time,
                   const std::vector<TraceSession>& trace);

}  // namespace tessera::tools
