#include "services/decode/template/escapes.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

// Reads `digits` hexadecimal ones at `at`.
absl::StatusOr<uint32_t> Hex(absl::string_view body, size_t at, size_t digits) {
  uint32_t code = 0;
  for (size_t i = 0; i < digits; ++i) {
    const char c = at + i < body.size() ? body[at + i] : ' ';
    if (!absl::ascii_isxdigit(c)) return Failure("a \\x, \\u or \\U escape is cut");
    const char lower = absl::ascii_tolower(c);
    code = code * 16 + static_cast<uint32_t>(lower <= '9' ? lower - '0' : lower - 'a' + 10);
  }
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
    return Failure("an escape names no character");
  }
  return code;
}

}  // namespace

absl::StatusOr<std::string> Unescape(absl::string_view body) {
  static constexpr absl::string_view kPlain = "abfnrtv\\'\"";
  static constexpr absl::string_view kMeaning = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\' || i + 1 >= body.size()) {
      out += body[i];
      continue;
    }
    const char c = body[++i];
    if (const size_t place = kPlain.find(c); place != absl::string_view::npos) {
      out += kMeaning[place];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      ASSIGN_OR_RETURN(const uint32_t code, Hex(body, i + 1, digits));
      AppendChar(code, &out);
      i += digits;
    } else if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      size_t end = i;
      while (end < body.size() && end < i + 3 && body[end] >= '0' && body[end] <= '7') {
        code = code * 8 + static_cast<uint32_t>(body[end++] - '0');
      }
      AppendChar(code, &out);
      i = end - 1;
    } else if (c == 'N') {
      return Failure("\\N{...} is not supported");
    } else if (c != '\n') {
      absl::StrAppend(&out, "\\", absl::string_view(&c, 1));
    }
  }
  return out;
}

}  // namespace tessera::decode::jinja
