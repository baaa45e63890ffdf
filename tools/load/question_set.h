#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::tools {

// A picture and what may be asked about it.
struct PictureQuestions {
  std::string name;   // of the file
  std::string bytes;  // of the file
  std::vector<std::string> questions;
};

// Reads one JSON object a line, {"image": FILE, "question": TEXT}, further keys ignored; FILE is
// relative to the set's own directory. Lines of one picture need not stand together.
// INVALID_ARGUMENT or NOT_FOUND names the line.
absl::StatusOr<std::vector<PictureQuestions>> ReadQuestions(const std::string& path);

}  // namespace tessera::tools
