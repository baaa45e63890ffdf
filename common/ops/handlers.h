#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/json.h"

namespace tessera::ops {

// A condition under a name; not OK: its message is the reason that the page shows.
struct Check {
  std::string name;
  std::function<absl::Status()> ask;
};

// A part of /debug/state. Counts and settings only: no text, no picture, no credential.
struct StateProvider {
  std::string name;
  std::function<base::Json()> tell;
};

// What the pages show. Called on the port's thread, one at a time; they must not wait.
struct Handlers {
  std::function<std::string()> metrics;  // brings gauges up to date, then the text form
  std::vector<Check> liveness;           // a failed one means: kill this process
  std::vector<Check> readiness;          // a failed one means: send nothing new
  std::vector<StateProvider> state;
};

}  // namespace tessera::ops
