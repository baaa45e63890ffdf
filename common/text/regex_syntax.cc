#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"
#include "common/text/regex.h"

// Oniguruma (Ruby syntax) to PCRE2 10.42. What both read alike is copied, what they read
// differently is rewritten, anything else is refused: a pattern is never run with another meaning.
namespace tessera::text {
namespace {

// White_Space of Unicode 16. PCRE2's own \s also holds U+180E.
constexpr char kSpace[] =
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"
    "\\x{205F}\\x{3000}";
constexpr char kNotSpace[] =
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}"
    "\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}"
    "\\x{3001}-\\x{D7FF}\\x{E000}-\\x{10FFFF}";
// Alphabetic, M, Nd, Pc. Outside of classes Oniguruma counts the numbers of Latin-1 as well.
constexpr char kWord[] =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}"
    "\\x{1F170}-\\x{1F189}";
constexpr char kLatin1Numbers[] = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";

class Translator {
 public:
  Translator(absl::string_view pattern, absl::string_view path) : in_(pattern), path_(path) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < in_.size()) {
      absl::Status status;
      switch (in_[at_]) {
        case '\\':
          status = Escape(false);
          break;
        case '[':
          status = Class();
          break;
        case '(':
          status = Group();
          break;
        case '{':
          status = Braces();
          break;
        default:
          Copy(1);
      }
      RETURN_IF_ERROR(status);
    }
    return std::move(out_);
  }

 private:
  void Copy(size_t count) {
    out_.append(in_.data() + at_, std::min(count, in_.size() - at_));
    at_ += count;
  }
  bool Next(absl::string_view text) const { return in_.substr(at_, text.size()) == text; }
  absl::Status Refuse(absl::string_view construct) const {
    return UnsupportedTokenizer(
        path_, absl::StrCat("the regex construct ", construct, " in \"", in_, "\""),
        "literals, classes without nesting, \\s \\S \\d \\D \\w \\p{..} \\P{..}, groups, "
        "look-around, (?i:..), quantifiers");
  }

  absl::Status Escape(bool in_class) {
    if (at_ + 1 >= in_.size()) return BadTokenizer(path_, "regex ends with a backslash");
    const char c = in_[at_ + 1];
    if (!absl::ascii_isalnum(c)) {  // an escaped sign or any other character stands for itself
      Copy(2);
      return absl::OkStatus();
    }
    switch (c) {
      case 's':
        return Replace(2, in_class, "[", kSpace);
      case 'S':
        return in_class ? Replace(2, true, "", kNotSpace) : Replace(2, false, "[^", kSpace);
      case 'w':
        return Replace(2, in_class, "[", in_class ? kWord : absl::StrCat(kWord, kLatin1Numbers));
      case 'v':
        return Replace(2, true, "", "\\x{B}");  // PCRE2's \v is a class
      case 'u':
        return Unicode();
      case 'x':
        return Hex();
      case 'd':
      case 'D':
      case 'r':
      case 'n':
      case 't':
      case 'f':
        Copy(2);
        return absl::OkStatus();
      case 'p':
      case 'P':
        return Property();
      case 'A':
      case 'z':
        if (!in_class) {
          Copy(2);
          return absl::OkStatus();
        }
        break;
      default:
        break;
    }
    return Refuse(absl::StrCat("\\", in_.substr(at_ + 1, 1)));
  }

  absl::Status Replace(size_t consumed, bool bare, absl::string_view open, absl::string_view set) {
    absl::StrAppend(&out_, bare ? "" : open, set, bare ? "" : "]");
    at_ += consumed;
    return absl::OkStatus();
  }

  absl::Status Hex() {
    size_t digits = 0;
    const bool braces = at_ + 2 < in_.size() && in_[at_ + 2] == '{';
    const size_t start = at_ + 2 + (braces ? 1 : 0);
    while (digits < (braces ? 6 : 2) && start + digits < in_.size() &&
           absl::ascii_isxdigit(in_[start + digits])) {
      ++digits;
    }
    if (digits == 0) return Refuse("\\x without digits");
    if (braces && in_.substr(start + digits, 1) != "}") return Refuse("\\x{..");
    return Replace(start + digits + (braces ? 1 : 0) - at_, true, "",
                   absl::StrCat("\\x{", in_.substr(start, digits), "}"));
  }

  absl::Status Unicode() {
    const absl::string_view digits = in_.substr(at_ + 2, 4);
    for (const char c : digits) {
      if (!absl::ascii_isxdigit(c)) return Refuse("\\u without four digits");
    }
    if (digits.size() != 4) return Refuse("\\u without four digits");
    return Replace(6, true, "", absl::StrCat("\\x{", digits, "}"));
  }

  absl::Status Property() {
    const size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == absl::string_view::npos) {
      return Refuse("\\p without {..}");
    }
    Copy(close + 1 - at_);
    return absl::OkStatus();
  }

  absl::Status Class() {
    Copy(Next("[^") ? 2 : 1);
    for (bool empty = true; at_ < in_.size(); empty = false) {
      if (in_[at_] == ']') {
        if (empty) return Refuse("empty class");
        Copy(1);
        return absl::OkStatus();
      }
      if (in_[at_] == '[') return Refuse("nested class");
      if (Next("&&")) return Refuse("&&");
      if (in_[at_] == '\\') {
        RETURN_IF_ERROR(Escape(true));
      } else {
        Copy(1);
      }
    }
    return BadTokenizer(path_, absl::StrCat("regex \"", in_, "\" has an unclosed class"));
  }

  absl::Status Group() {
    if (!Next("(?")) {
      Copy(1);
      return absl::OkStatus();
    }
    for (const absl::string_view open :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:", "(?-i)"}) {
      if (Next(open)) {
        Copy(open.size());
        return absl::OkStatus();
      }
    }
    return Refuse(in_.substr(at_, 4));
  }

  // {n} {n,} {n,m} {,m}; any other brace is a literal.
  absl::Status Braces() {
    const size_t close = in_.find('}', at_);
    const absl::string_view body =
        close == absl::string_view::npos ? "" : in_.substr(at_ + 1, close - at_ - 1);
    const size_t comma = body.find(',');
    const absl::string_view low = body.substr(0, comma);
    const absl::string_view high = comma == absl::string_view::npos ? "" : body.substr(comma + 1);
    if (!AllDigits(low) || !AllDigits(high) || (low.empty() && high.empty())) {
      out_ += "\\{";
      ++at_;
      return absl::OkStatus();
    }
    // Ruby reads {n,m}+ as a repeat of the repeat, PCRE2 as possessive.
    if (in_.substr(close + 1, 1) == "+") return Refuse("{n,m}+");
    absl::StrAppend(&out_, "{", low.empty() ? "0" : low,
                    comma == absl::string_view::npos ? "" : ",", high, "}");
    at_ = close + 1;
    return absl::OkStatus();
  }

  static bool AllDigits(absl::string_view text) {
    for (const char c : text) {
      if (!absl::ascii_isdigit(c)) return false;
    }
    return true;
  }

  absl::string_view in_;
  absl::string_view path_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> TranslatePattern(absl::string_view pattern, absl::string_view path) {
  return Translator(pattern, path).Run();
}

}  // namespace tessera::text
