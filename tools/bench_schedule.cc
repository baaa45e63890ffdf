#include "tools/bench_schedule.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check_range.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "tools/report/distribution.h"
#include "tools/schedule/simulator.h"
#include "tools/schedule/step_time.h"

namespace tessera::tools {
namespace {

absl::Status Validate(const ScheduleBenchOptions& options) {
  RETURN_IF_ERROR(base::CheckRange("max_sequences", options.max_sequences, 1, 1024));
  RETURN_IF_ERROR(
      base::CheckRange("max_batch_tokens", options.max_batch_tokens, options.max_sequences, 65536));
  RETURN_IF_ERROR(base::CheckRange("block_size", options.block_size, 1, 256));
  RETURN_IF_ERROR(base::CheckRange("context_tokens", options.context_tokens, 1, 1 << 20));
  const TraceOptions& make = options.make;
  RETURN_IF_ERROR(base::CheckRange("sessions", make.sessions, 1, 1000000));
  RETURN_IF_ERROR(base::CheckRange("burst", make.burst, 1, 1000000));
  RETURN_IF_ERROR(base::CheckRange("pictures", make.pictures, 0, 1000000));
  RETURN_IF_ERROR(base::CheckRange("tenants", make.tenants, 1, 1000));
  RETURN_IF_ERROR(base::CheckRange("rows", make.rows, 0, 65536));
  RETURN_IF_ERROR(base::CheckRange("turns", make.turns, 1, 1000));
  RETURN_IF_ERROR(base::CheckRange("question_tokens", make.question_tokens, 1, 65536));
  RETURN_IF_ERROR(base::CheckRange("answer_tokens", make.answer_tokens, 1, 65536));
  if (!(make.rate > 0)) return base::BadField("rate", "BAD_OPTION", "rate must be above 0");
  return absl::OkStatus();
}

absl::StatusOr<SimulatorOptions> SimulatorFor(const ScheduleBenchOptions& options,
                                              const StepTime& time) {
  SimulatorOptions simulator;
  simulator.scheduler.max_batch_tokens = options.max_batch_tokens;
  simulator.scheduler.max_sequences = options.max_sequences;
  simulator.scheduler.max_waiting = 1 << 20;
  simulator.scheduler.context_tokens = options.context_tokens;
  simulator.block_size = options.block_size;
  const double blocks = static_cast<double>(options.kv_cache_bytes) /
                        std::max(1.0, time.kv_bytes_per_token * options.block_size);
  if (blocks < 1) {
    return base::BadField("kv_cache_bytes", "BAD_OPTION",
                          absl::StrCat("kv_cache_bytes = ", options.kv_cache_bytes,
                                       " holds no block of ", options.block_size, " tokens"));
  }
  simulator.blocks = static_cast<int32_t>(std::min(blocks, 1e7));
  simulator.prefix_cache_blocks = options.prefix_cache ? simulator.blocks : 0;
  return simulator;
}

// Milliseconds of a set of turns.
struct Latencies {
  Distribution ttft, itl, e2e;
  double mean_steps_to_first = 0;
  double last_first_token = 0;
  int refused = 0;
};

Latencies Summarize(const std::vector<const SimulatedTurn*>& turns) {
  std::vector<double> ttft, itl, e2e;
  Latencies latencies;
  for (const SimulatedTurn* turn : turns) {
    if (turn->refused) {
      ++latencies.refused;
      continue;
    }
    ttft.push_back(1e3 * (turn->first_token - turn->arrival));
    e2e.push_back(1e3 * (turn->end - turn->arrival));
    for (const double gap : turn->gaps) itl.push_back(1e3 * gap);
    latencies.mean_steps_to_first += turn->steps_to_first_token;
  }
  if (!ttft.empty()) latencies.mean_steps_to_first /= static_cast<double>(ttft.size());
  latencies.ttft = Describe(ttft);
  latencies.itl = Describe(itl);
  latencies.e2e = Describe(e2e);
  return latencies;
}

base::Json ToJson(const Distribution& d) {
  return {{"mean", d.mean}, {"median", d.median}, {"p90", d.p90}, {"p99", d.p99}, {"max", d.max}};
}

base::Json ToJson(const Latencies& l) {
  return {{"turns", l.ttft.count},     {"refused", l.refused},
          {"ttft_ms", ToJson(l.ttft)}, {"itl_ms", ToJson(l.itl)},
          {"e2e_ms", ToJson(l.e2e)},   {"mean_steps_to_first_token", l.mean_steps_to_first}};
}

void Print(std::ostream& out, const char* name, const Distribution& d) {
  out << absl::StrFormat("  %-8s mean %9.2f  median %9.2f  p90 %9.2f  p99 %9.2f  max %9.2f\n", name,
                         d.mean, d.median, d.p90, d.p99, d.max);
}

void Print(std::ostream& out, const std::string& title, const Latencies& l) {
  out << title << ": " << l.ttft.count << " turns";
  if (l.refused > 0) out << ", " << l.refused << " refused";
  out << absl::StrFormat(", %.1f steps to the first token\n", l.mean_steps_to_first);
  Print(out, "TTFT ms", l.ttft);
  Print(out, "ITL ms", l.itl);
  Print(out, "E2E ms", l.e2e);
}

double HitShare(const Simulated& result) {
  if (result.counts.queried_tokens == 0) return 0;
  return static_cast<double>(result.counts.hit_tokens) /
         static_cast<double>(result.counts.queried_tokens);
}

void Report(const Simulated& result, const std::map<int, Latencies>& by_turn, const Latencies& all,
            std::ostream& out) {
  const Distribution bookkeeping = Describe(result.bookkeeping_seconds);
  out << absl::StrFormat(
      "simulated %.3f s: %d steps, %d tokens computed, %d answered, %.1f answer tokens/s\n",
      result.seconds, result.steps, result.computed_tokens, result.answer_tokens,
      static_cast<double>(result.answer_tokens) / std::max(result.seconds, 1e-9));
  out << absl::StrFormat("prefix hit %.1f %% of prompt tokens; %d preemptions\n",
                         100 * HitShare(result), result.counts.preemptions);
  out << absl::StrFormat("scheduler and caches: median %.1f us, p99 %.1f us of real time a step\n",
                         1e6 * bookkeeping.median, 1e6 * bookkeeping.p99);
  Print(out, "all", all);
  for (const auto& [turn, latencies] : by_turn) {
    Print(out, absl::StrCat("turn ", turn + 1), latencies);
  }
}

}  // namespace

absl::Status RunScheduleBench(const ScheduleBenchOptions& options, std::ostream& out) {
  RETURN_IF_ERROR(Validate(options));
  ASSIGN_OR_RETURN(const StepTime time, StepTime::Load(options.profile));
  ASSIGN_OR_RETURN(const SimulatorOptions simulator, SimulatorFor(options, time));
  std::vector<TraceSession> trace = MakeTrace(options.make);
  if (!options.trace.empty()) {
    ASSIGN_OR_RETURN(trace, ReadTrace(options.trace));
  }
  const Simulated result = Simulate(simulator, time, trace);
  std::vector<const SimulatedTurn*> all;
  std::map<int, std::vector<const SimulatedTurn*>> turns;
  for (const SimulatedTurn& turn : result.turns) {
    all.push_back(&turn);
    turns[turn.turn].push_back(&turn);
  }
  std::map<int, Latencies> by_turn;
  for (const auto& [turn, members] : turns) by_turn[turn] = Summarize(members);
  if (!options.json) {
    out << "profile " << time.name << ", " << simulator.blocks << " blocks of "
        << simulator.block_size << " tokens\n";
    Report(result, by_turn, Summarize(all), out);
    return absl::OkStatus();
  }
  base::Json json = {{"profile", time.name},
                     {"seconds", result.seconds},
                     {"steps", result.steps},
                     {"computed_tokens", result.computed_tokens},
                     {"answer_tokens", result.answer_tokens},
                     {"prefix_hit_ratio", HitShare(result)},
                     {"preemptions", result.counts.preemptions},
                     {"bookkeeping_seconds", ToJson(Describe(result.bookkeeping_seconds))},
                     {"all", ToJson(Summarize(all))}};
  for (const auto& [turn, latencies] : by_turn) json["by_turn"].push_back(ToJson(latencies));
  out << json.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace tessera::tools
