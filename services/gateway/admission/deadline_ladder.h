#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tessera::gateway {

// What may be changed of a request that would miss its deadline, before it fails.
enum class LadderStep {
  kRows = 0,      // fewer rows for its pictures, where the model allows it; no family does today
  kOutput = 1,    // a shorter answer
  kRedirect = 2,  // a replica that is not its first choice and has less to do
  kRefuse = 3,    // DEADLINE_EXCEEDED at once
};

// "rows,output,redirect,refuse" or a part of it in another order; empty: nothing is changed.
// INVALID_ARGUMENT for an unknown or repeated step.
absl::StatusOr<std::vector<LadderStep>> ParseLadder(absl::string_view text);
// As ParseLadder takes it.
std::string LadderText(const std::vector<LadderStep>& steps);

// What is known of a request about to go to decode.
struct LadderInput {
  absl::Duration left;         // until its deadline
  absl::Duration wait_first;   // of its first choice among the replicas, until it begins there
  absl::Duration wait_least;   // of the one with the least to do
  absl::Duration first_token;  // from its begin to its first token
  absl::Duration soonest;      // to its first token, at the best
  absl::Duration per_token;    // above 0
  uint32_t max_tokens = 0;     // of its answer
  uint32_t min_tokens = 0;     // an answer shorter than this is of no use; at least 1
};

struct LadderPlan {
  uint32_t max_tokens = 0;
  bool redirect = false;
  bool refuse = false;
};

// Takes the steps in their order until as long an answer as may come fits into the time. Refused is
// only what would not have its first token in time at the best: most answers end long before
// max_tokens. Pure.
LadderPlan Climb(const std::vector<LadderStep>& steps, const LadderInput& input);

}  // namespace tessera::gateway
