#pragma once

#include <iosfwd>
#include <string>

#include "absl/status/status.h"

namespace tessera::tools {

struct InspectOptions {
  std::string path;   // a model directory or a picture
  std::string model;  // for a picture: whose rows to count; may be empty
};

// Prints what a model directory holds (no weights are loaded) or what a picture is. A picture fails
// only where it cannot be decoded; a model also where config or header cannot be read.
absl::Status Inspect(const InspectOptions& options, std::ostream& out);

}  // namespace tessera::tools
