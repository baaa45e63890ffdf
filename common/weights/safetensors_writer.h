#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/weights/safetensors.h"

namespace tessera::weights {

// A safetensors file of these tensors, in their order, with `metadata`. Data begins at a multiple
// of 8. Pure. REQUIRES: names differ, none is __metadata__; all texts are UTF-8.
std::string SafetensorsBytes(absl::Span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata = {});

// Writes `bytes` beside `path`, then renames: readers see the old file or the new one. Errors as
// the system tells them, with the path.
absl::Status ReplaceFile(const std::string& path, absl::string_view bytes);

}  // namespace tessera::weights
