#include "common/base/log.h"

#include <unistd.h>

#include "absl/time/clock.h"
#include "common/base/line_writer.h"

namespace tessera::base {
namespace {

constexpr absl::Duration kPatience = absl::Milliseconds(20);  // with whoever reads the log

// Never destroyed: the last lines come while static objects end.
LineWriter& StandardError() {
  static auto& writer = *new LineWriter(STDERR_FILENO, kPatience);
  return writer;
}

}  // namespace

void Log(LogLevel level, absl::string_view message, absl::Span<const LogFact> facts) {
  StandardError().Write(LogLine(absl::Now(), level, message, facts));
}

int64_t LostLogLines() { return StandardError().lost(); }

}  // namespace tessera::base
