#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tensor/tensor.h"

// tessera_canary.safetensors: what a model said of one picture on the reference backend in f32.
// `tessera canary` writes it; whoever serves the model says the same at start, or is never ready.
//
// Tensors: picture U8 [bytes] · rows, grey_rows F32 [rows, width] · prompt_ids I32 [tokens] · ids,
// grey_ids I32 [steps] · gaps, spreads, grey_gaps, grey_spreads F32 [steps]. Metadata: format,
// model_digest, preprocessing.
namespace tessera::weights {

inline constexpr char kCanaryFileName[] = "tessera_canary.safetensors";

// Greedy tokens behind the prompt, as many as are wanted: the end token does not end them.
struct CanaryAnswer {
  std::vector<int32_t> ids;    // [steps]
  std::vector<float> gaps;     // [steps] best logit minus second best
  std::vector<float> spreads;  // [steps] standard deviation of all logits of the step
};

struct Canary {
  std::string model_digest;         // ModelDigest, hex
  std::string preprocessing;        // canonical text
  std::string picture;              // encoded
  Tensor rows;                      // f32 [rows, width] of the picture
  Tensor grey_rows;                 // the same of a grey picture of its size
  std::vector<int32_t> prompt_ids;  // -1 where a row stands
  CanaryAnswer answer;              // with `rows`
  CanaryAnswer grey;                // with `grey_rows`: other ids
};

// What became of the check at start.
struct CanaryResult {
  bool present = false;
  absl::Status status;  // OK without a file
};

// The canary of a model directory; nullopt without one. INVALID_ARGUMENT (CANARY_BAD) names the
// file and what is wrong with it: broken, another format version, shapes that do not fit, NaN.
// FAILED_PRECONDITION (CANARY_OTHER_MODEL): made for another config or other tensors.
absl::StatusOr<std::optional<Canary>> ReadCanary(const std::string& model_dir);

// Reads the canary and, where there is one, asks `check`.
CanaryResult RunCanary(const std::string& model_dir,
                       absl::FunctionRef<absl::Status(const Canary&)> check);

// The file's bytes. REQUIRES: as the fields say.
std::string CanaryBytes(const Canary& canary);
// From a file's bytes. INVALID_ARGUMENT (CANARY_BAD). Pure.
absl::StatusOr<Canary> ParseCanary(absl::string_view file);

// SHA-256 in hex over config.json and over name, dtype and shape of every tensor: which model it
// is, but not the values of its weights, which the canary itself tests.
absl::StatusOr<std::string> ModelDigest(const std::string& model_dir);

}  // namespace tessera::weights
