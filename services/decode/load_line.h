#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "services/decode/engine/engine_stats.h"

namespace tessera::decode {

// What the engine did in the last `span`, since `before`, in one line for the log; nullopt where it
// did nothing and has nothing to do. Pure.
std::optional<std::string> LoadLine(const EngineStats& now, const EngineStats& before,
                                    absl::Duration span);

}  // namespace tessera::decode
