#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/decode/model/config_reader.h"

namespace tessera::decode {

// Keys of a config.json that change nothing in what one pass of the decoder computes.
absl::Span<const absl::string_view> HarmlessKeys();

// Refuses settings of other decoders (quantization, sliding windows, ...) that are switched on.
absl::Status RefuseOtherSettings(ConfigReader& reader);

}  // namespace tessera::decode
