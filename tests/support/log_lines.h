#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/base/json.h"

namespace tessera::testing {

// The lines of a captured log, each one JSON object, by their "request_id"; of equal ids the last.
// Aborts where a line is no JSON.
inline std::map<std::string, base::Json> LinesById(const std::string& log) {
  std::map<std::string, base::Json> lines;
  const std::vector<std::string> texts = absl::StrSplit(log, '\n', absl::SkipEmpty());
  for (const std::string& text : texts) {
    base::Json line = base::ParseJson(text).value();
    const std::string id = line["request_id"];
    lines[id] = std::move(line);
  }
  return lines;
}

}  // namespace tessera::testing
