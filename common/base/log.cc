#include "common/base/log.h"

#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tessera::base {

void Log(LogLevel level, absl::string_view message) {
  constexpr size_t kMaxBytes = 1000;
  static constexpr char kLetters[] = "IWE";
  const std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ",
                   std::string(1, kLetters[static_cast<int>(level)]), " ",
                   absl::Utf8SafeCHexEscape(message.substr(0, kMaxBytes)), "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace tessera::base
