#include "common/base/log.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace tessera::base {
namespace {

constexpr size_t kMaxLineBytes = 4096;  // what a pipe takes in one piece (PIPE_BUF)
constexpr size_t kMaxMessageBytes = 1000;
constexpr size_t kMaxTextBytes = 256;
constexpr absl::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Bytes of the well-formed UTF-8 character that `text` begins with (Unicode 15, table 3-7); 0 where
// there is none. REQUIRES: `text` is not empty.
size_t CharacterBytes(absl::string_view text) {
  const auto at = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < low || at(1) > high) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (at(i) < 0x80 || at(i) > 0xbf) return 0;
  }
  return bytes;
}

// How a character stands in a JSON string. Control characters, those of U+0080 to U+009F too, could
// drive a terminal; U+2028 and U+2029 end lines for some readers.
std::string Escaped(absl::string_view character) {
  const auto byte = [character](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) {
    if (character == "\"" || character == "\\") return absl::StrCat("\\", character);
    if (character == "\n") return "\\n";
    if (character == "\t") return "\\t";
    if (byte(0) < 0x20 || byte(0) == 0x7f) return absl::StrFormat("\\u%04x", byte(0));
  }
  if (character.size() == 2 && byte(0) == 0xc2 && byte(1) < 0xa0) {
    return absl::StrFormat("\\u%04x", byte(1));
  }
  if (character == "\xe2\x80\xa8" || character == "\xe2\x80\xa9") {
    return absl::StrFormat("\\u20%02x", byte(2) - 0x80);
  }
  return std::string(character);
}

// A JSON string of at most `most` bytes beside its quotes, ended between two characters.
std::string Quoted(absl::string_view text, size_t most) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const std::string character =
        bytes == 0 ? std::string(kReplacement) : Escaped(text.substr(0, bytes));
    if (out.size() - 1 + character.size() > most) break;
    out += character;
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  out += '"';
  return out;
}

std::string JsonOf(const LogFact::Value& value) {
  struct {
    std::string operator()(absl::string_view text) const { return Quoted(text, kMaxTextBytes); }
    std::string operator()(int64_t number) const { return absl::StrCat(number); }
    std::string operator()(double number) const {
      return std::isfinite(number) ? absl::StrFormat("%.6g", number) : "null";
    }
    std::string operator()(bool truth) const { return truth ? "true" : "false"; }
  } visitor;
  return std::visit(visitor, value);
}

const char* NameOf(LogLevel level) {
  return level == LogLevel::kInfo ? "info" : level == LogLevel::kWarning ? "warning" : "error";
}

}  // namespace

std::string LogLine(absl::Time now, LogLevel level, absl::string_view message,
                    absl::Span<const LogFact> facts) {
  std::string line = absl::StrCat(
      "{\"time\":\"", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone()),
      "\",\"level\":\"", NameOf(level), "\",\"message\":", Quoted(message, kMaxMessageBytes));
  for (const LogFact& fact : facts) {
    const std::string pair =
        absl::StrCat(",", Quoted(fact.key(), kMaxTextBytes), ":", JsonOf(fact.value()));
    if (line.size() + pair.size() + 2 > kMaxLineBytes) break;
    line += pair;
  }
  line += "}\n";
  return line;
}

void Log(LogLevel level, absl::string_view message, absl::Span<const LogFact> facts) {
  const std::string line = LogLine(absl::Now(), level, message, facts);
  absl::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody to tell
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace tessera::base
