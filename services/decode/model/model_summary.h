#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/decode/model/decoder_config.h"

namespace tessera::decode {

// What a model directory holds, told from its config and the headers of its weight files: no tensor
// is read.
struct ModelSummary {
  std::string family;                      // model_type; "" when config.json names none
  std::string text_family;                 // model_type of the decoder, where it has its own
  std::vector<std::string> element_types;  // of the tensors, sorted: "BF16", "F16", ...
  size_t tensors = 0;

  // Parameters, by the part that their names tell; a tied head counts once.
  int64_t decoder_parameters = 0;
  int64_t vision_parameters = 0;
  int64_t connector_parameters = 0;
  int64_t other_parameters = 0;
  int64_t weight_bytes = 0;

  std::optional<DecoderConfig> decoder;  // when it is supported
  bool tied_head = false;
  int64_t kv_bytes_per_token_f16 = 0;
  int64_t kv_bytes_per_token_f32 = 0;
  int64_t kv_bytes_per_token_int8 = 0;

  std::vector<std::string> unsupported;  // what is, and why; empty: the decoder can be served
  std::vector<std::string> warnings;
  std::vector<std::string> unused_tensors;

  int64_t parameters() const {
    return decoder_parameters + vision_parameters + connector_parameters + other_parameters;
  }
};

// An error only when config.json is absent or is no JSON object; all else is told in the summary.
absl::StatusOr<ModelSummary> Inspect(const std::string& model_dir);

}  // namespace tessera::decode
