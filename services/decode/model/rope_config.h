#pragma once

#include "absl/status/statusor.h"
#include "services/decode/model/config_reader.h"
#include "services/decode/model/rope.h"

namespace tessera::decode {

// Reads the rotary settings of a decoder in any of their forms: rope_theta with rope_scaling
// (`type` or `rope_type`), or rope_parameters, which holds both; a value inside wins over one
// beside it. Unknown keys inside are added to `warnings`.
absl::StatusOr<RopeConfig> ReadRopeConfig(ConfigReader& text, int64_t max_position_embeddings,
                                          std::vector<std::string>& warnings);

}  // namespace tessera::decode
