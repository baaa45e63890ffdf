#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "services/decode/model/batch_plan.h"

namespace tessera::tools {

// How long a device takes for a step of one model: the roofline of its arithmetic and its memory.
// Read from a small JSON file; every key is required, unknown ones are refused.
struct StepTime {
  std::string name;
  double seconds_per_token = 0;   // arithmetic of one token of a long batch
  double weight_bytes = 0;        // read once per step
  double kv_bytes_per_token = 0;  // of one token of one sequence, all layers
  double bytes_per_second = 0;    // of memory
  double overhead_seconds = 0;    // of every step
  double encode_seconds = 0;      // of one picture, on the other device

  // INVALID_ARGUMENT or NOT_FOUND names file and key.
  static absl::StatusOr<StepTime> Load(const std::string& path);

  // max(tokens * seconds_per_token, weight_bytes / bytes_per_second)
  //   + contexts * kv_bytes_per_token / bytes_per_second + overhead_seconds
  double Of(const decode::BatchPlan& plan) const;
  double Of(int64_t tokens, int64_t context_tokens) const;
};

}  // namespace tessera::tools
