#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/log_line.h"

namespace tessera::base {

// One line (LogLine) to stderr. Any thread; one write, so a line is never torn. Where nobody reads
// stderr, lines are lost rather than waited for (LineWriter). Never user text, picture content,
// keys or names of sessions.
void Log(LogLevel level, absl::string_view message, absl::Span<const LogFact> facts = {});

// Lines that nobody could be told, since the process began.
int64_t LostLogLines();

}  // namespace tessera::base
