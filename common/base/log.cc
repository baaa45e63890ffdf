#include "common/base/log.h"

#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tessera::base {
namespace {

// Control characters could forge lines or drive a terminal.
std::string Printable(absl::string_view text) {
  std::string out;
  for (char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppend(&out, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

void Log(LogLevel level, absl::string_view message) {
  constexpr size_t kMaxBytes = 1000;
  static constexpr char kLetters[] = "IWE";
  const std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ",
                   std::string(1, kLetters[static_cast<int>(level)]), " ",
                   Printable(message.substr(0, kMaxBytes)), "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace tessera::base
