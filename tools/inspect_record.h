#pragma once

#include <iosfwd>
#include <string>

#include "absl/status/status.h"

namespace tessera::tools {

struct InspectRecordOptions {
  std::string path = {};      // of a file that holds one record; or empty, and:
  std::string redis = {};     // URL
  std::string key = {};       // 64 hex digits, or the whole name in Redis
  std::string key_file = {};  // of the store's GMAC; empty: XXH3
};

// Prints what an embedding record says of itself, its sizes, and what a reader with this key file
// thinks of it. INVALID_ARGUMENT with the verdict as reason, after all was printed, where such a
// reader would refuse it; NOT_FOUND, reason RECORD_NOT_FOUND.
absl::Status InspectRecord(const InspectRecordOptions& options, std::ostream& out);

}  // namespace tessera::tools
