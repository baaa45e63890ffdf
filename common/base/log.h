#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tessera::base {

enum class LogLevel { kInfo, kWarning, kError };

// One line to stderr: "<UTC time> I|W|E message". Any thread; a line is never torn. At most 1 kB of
// the message is printed, control characters escaped. Never user text or picture content.
void Log(LogLevel level, absl::string_view message);

}  // namespace tessera::base
