#include "common/base/log_line.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/utf8.h"

namespace tessera::base {
namespace {

constexpr size_t kMaxLineBytes = 4096;  // what a pipe takes in one piece (PIPE_BUF)
constexpr size_t kMaxMessageBytes = 1000;
constexpr size_t kMaxTextBytes = 256;

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
        bytes == 0 ? std::string(kReplacementCharacter) : Escaped(text.substr(0, bytes));
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

}  // namespace tessera::base
