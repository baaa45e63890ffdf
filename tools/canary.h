#pragma once

#include <iosfwd>
#include <string>

#include "absl/status/status.h"

namespace tessera::tools {

struct CanaryOptions {
  std::string model_dir = {};
  std::string out = {};              // empty: the model's own file
  std::string device = "reference";  // that says what is right
};

// Writes tessera_canary.safetensors (common/weights/canary_file.h): a drawn picture, what the model
// makes of it and of plain grey, in f32. Asks a few questions in turn until one is answered
// differently for sure. FAILED_PRECONDITION (CANARY_BLIND) where none is: the model does not look.
absl::Status WriteCanary(const CanaryOptions& options, std::ostream& out);

}  // namespace tessera::tools
