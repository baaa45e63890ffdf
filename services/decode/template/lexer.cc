#include "services/decode/template/lexer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/escapes.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

std::string NormalizeNewlines(absl::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) RETURN_IF_ERROR(Data());
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::string_view Rest() const { return absl::string_view(source_).substr(position_); }
  bool Next(absl::string_view text) const { return absl::StartsWith(Rest(), text); }
  absl::Status Fail(absl::string_view message) const { return FailureAt(line_, message); }
  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void Advance(size_t bytes) {
    line_ += static_cast<int>(
        std::count(source_.begin() + position_, source_.begin() + position_ + bytes, '\n'));
    position_ += bytes;
  }

  void SkipSpace() {
    size_t end = position_;
    while (end < source_.size()) {
      const Char character = CharAt(source_, end);
      if (!IsSpace(character.code)) break;
      end += character.bytes;
    }
    Advance(end - position_);
  }

  // Text of [begin, end) before a tag: `sign` is what follows the opening braces.
  std::string Trimmed(size_t begin, size_t end, char sign, bool variable) const {
    absl::string_view text = absl::string_view(source_).substr(begin, end - begin);
    size_t size = text.size();
    if (sign == '-') {
      size = TrailingSpaceStart(text, 0);
    } else if (sign != '+' && !variable) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == absl::string_view::npos ? 0 : newline + 1;
      const bool line_start = start > 0 || begin == 0 || source_[begin - 1] == '\n';
      if (line_start && TrailingSpaceStart(text, start) == start) size = start;
    }
    return std::string(text.substr(0, size));
  }

  // Where the white space at the end of `text` starts, not before `from`.
  static size_t TrailingSpaceStart(absl::string_view text, size_t from) {
    size_t start = from;
    for (size_t i = from; i < text.size();) {
      const Char character = CharAt(text, i);
      i += character.bytes;
      if (!IsSpace(character.code)) start = i;
    }
    return start;
  }

  char SignAt(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : ' ';
  }

  // Consumes the end of a block or comment: `-%}` eats white space, `%}` one newline.
  // False when it is not here.
  bool TakeEnd(absl::string_view end, bool eat_newline) {
    for (const char sign : {'-', '+', ' '}) {
      if (sign == '+' && !eat_newline) continue;
      const std::string whole =
          sign == ' ' ? std::string(end) : absl::StrCat(absl::string_view(&sign, 1), end);
      if (!Next(whole)) continue;
      Advance(whole.size());
      if (sign == '-') SkipSpace();
      if (sign == ' ' && eat_newline && Next("\n")) Advance(1);
      return true;
    }
    return false;
  }

  absl::Status Data() {
    const size_t begin = position_;
    size_t tag = source_.find('{', begin);
    while (tag != std::string::npos && tag + 1 < source_.size() && source_[tag + 1] != '{' &&
           source_[tag + 1] != '%' && source_[tag + 1] != '#') {
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string::npos || tag + 1 >= source_.size()) {
      AddData(source_.substr(begin));
      Advance(source_.size() - begin);
      return absl::OkStatus();
    }
    const char kind = source_[tag + 1];
    const char sign = SignAt(tag + 2);
    AddData(Trimmed(begin, tag, sign, kind == '{'));
    Advance(tag - begin + (sign == ' ' ? 2 : 3));
    if (kind == '#') return Comment();
    if (kind == '{') return Tag(TokenKind::kVariableBegin, TokenKind::kVariableEnd, "}}");
    ASSIGN_OR_RETURN(const bool raw, Raw());
    if (raw) return absl::OkStatus();
    return Tag(TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
  }

  void AddData(std::string text) {
    if (!text.empty()) Add(TokenKind::kData, std::move(text));
  }

  absl::Status Comment() {
    while (position_ < source_.size()) {
      if (TakeEnd("#}", true)) return absl::OkStatus();
      Advance(1);
    }
    return Fail("a comment is not closed");
  }

  // After `{%`: consumes a whole raw block, or nothing.
  absl::StatusOr<bool> Raw() {
    const size_t start = position_;
    const int line = line_;
    SkipSpace();
    if (Next("raw")) {
      Advance(3);
      SkipSpace();
      if (TakeEnd("%}", false)) {
        RETURN_IF_ERROR(RawBody());
        return true;
      }
    }
    position_ = start;
    line_ = line;
    return false;
  }

  absl::Status RawBody() {
    const size_t begin = position_;
    const int line = line_;
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = SignAt(tag + 2);
      position_ = tag + (sign == ' ' ? 2 : 3);
      SkipSpace();
      if (!Next("endraw")) continue;
      Advance(6);
      SkipSpace();
      if (!TakeEnd("%}", true)) continue;
      line_ = line;
      AddData(Trimmed(begin, tag, sign, false));
      line_ +=
          static_cast<int>(std::count(source_.begin() + begin, source_.begin() + position_, '\n'));
      return absl::OkStatus();
    }
    line_ = line;
    return Fail("a raw block is not closed");
  }

  absl::Status Tag(TokenKind open, TokenKind close, absl::string_view end) {
    Add(open, "");
    brackets_.clear();
    while (position_ < source_.size()) {
      SkipSpace();
      if (brackets_.empty()) {
        const int line = line_;
        if (TakeEnd(end, close == TokenKind::kBlockEnd)) {
          tokens_.push_back({close, "", line});
          return absl::OkStatus();
        }
      }
      if (position_ < source_.size()) RETURN_IF_ERROR(OneToken());
    }
    return Fail("a tag is not closed");
  }

  absl::Status OneToken() {
    const char c = source_[position_];
    if (absl::ascii_isdigit(c)) return Number();
    if (c == '\'' || c == '"') return String(c);
    if (absl::ascii_isalpha(c) || c == '_') {
      size_t end = position_;
      while (end < source_.size() && (absl::ascii_isalnum(source_[end]) || source_[end] == '_')) {
        ++end;
      }
      Add(TokenKind::kName, source_.substr(position_, end - position_));
      Advance(end - position_);
      return absl::OkStatus();
    }
    return Operator();
  }

  // Digits, single underscores between them.
  size_t DigitsEnd(size_t at) const {
    while (at < source_.size() &&
           (absl::ascii_isdigit(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() &&
             absl::ascii_isdigit(source_[at + 1]) && absl::ascii_isdigit(source_[at - 1])))) {
      ++at;
    }
    return at;
  }

  bool DigitAt(size_t at) const { return at < source_.size() && absl::ascii_isdigit(source_[at]); }

  absl::Status Number() {
    size_t end = DigitsEnd(position_);
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    bool real = false;
    if (!after_dot) {
      if (end < source_.size() && source_[end] == '.' && DigitAt(end + 1)) {
        end = DigitsEnd(end + 1);
        real = true;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const size_t sign =
            end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1
                                                                                             : 0;
        if (DigitAt(end + 1 + sign)) {
          end = DigitsEnd(end + 1 + sign);
          real = true;
        }
      }
    }
    std::string digits = source_.substr(position_, end - position_);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    const bool zeros = digits.find_first_not_of('0') == std::string::npos;
    const bool letter =
        end < source_.size() && (absl::ascii_isalnum(source_[end]) || source_[end] == '_');
    if (letter || (!real && digits.size() > 1 && digits[0] == '0' && !zeros)) {
      return Fail(absl::StrCat("unknown number that starts with ", digits));
    }
    Add(real ? TokenKind::kFloat : TokenKind::kInteger, zeros && !real ? "0" : digits);
    Advance(end - position_);
    return absl::OkStatus();
  }

  absl::Status String(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Fail("a string is not closed");
    absl::StatusOr<std::string> text =
        Unescape(absl::string_view(source_).substr(position_ + 1, end - position_ - 1));
    if (!text.ok()) return AtLine(text.status(), line_);
    Add(TokenKind::kString, *std::move(text));
    Advance(end + 1 - position_);
    return absl::OkStatus();
  }

  absl::Status Operator() {
    static constexpr absl::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const absl::string_view text : kOperators) {
      if (!Next(text)) continue;
      RETURN_IF_ERROR(Balance(text[0]));
      Add(TokenKind::kOperator, std::string(text));
      Advance(text.size());
      return absl::OkStatus();
    }
    return Fail(absl::StrCat("unexpected character '",
                             Rest().substr(0, CharAt(source_, position_).bytes), "'"));
  }

  absl::Status Balance(char c) {
    const std::string open = "([{", close = ")]}";
    if (open.find(c) != std::string::npos) brackets_.push_back(close[open.find(c)]);
    if (close.find(c) == std::string::npos) return absl::OkStatus();
    if (brackets_.empty() || brackets_.back() != c) {
      return Fail(absl::StrCat("unexpected '", absl::string_view(&c, 1), "'"));
    }
    brackets_.pop_back();
    return absl::OkStatus();
  }

  const std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  std::string brackets_;  // closing ones that are still owed
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source, const Limits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return Failure(absl::StrCat("the template is longer than ", limits.max_source_bytes, " bytes"));
  }
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace tessera::decode::jinja
