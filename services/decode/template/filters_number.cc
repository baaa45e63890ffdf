#include <cmath>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/filter_tables.h"
#include "services/decode/template/operators.h"

namespace tessera::decode::jinja {
namespace {

// The digits of a Python number, underscores gone; nothing when there is a character that no plain
// decimal number has.
std::string Digits(absl::string_view text) {
  std::string digits;
  text = absl::StripAsciiWhitespace(text);
  for (size_t i = 0; i < text.size(); ++i) {
    const bool inner = i > 0 && i + 1 < text.size() && absl::ascii_isdigit(text[i - 1]) &&
                       absl::ascii_isdigit(text[i + 1]);
    if (text[i] == '_' && inner) continue;
    if (!absl::ascii_isdigit(text[i]) &&
        absl::string_view("+-.eE").find(text[i]) == absl::string_view::npos) {
      return "";
    }
    digits += text[i];
  }
  return digits;
}

absl::Status RefuseOdd(const Text& text) {
  const std::string lower = absl::AsciiStrToLower(text.bytes());
  for (const char c : lower) {
    if ((c & 0x80) != 0) return Failure("a number in characters beyond ASCII is not supported");
  }
  if (lower.find("inf") != std::string::npos || lower.find("nan") != std::string::npos) {
    return Failure("infinite numbers are not supported");
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> FloatToInt(double number, bool untrusted) {
  if (!(std::abs(number) < 9.2e18)) return Failure("an integer beyond 64 bits");
  return Value::Int(static_cast<int64_t>(number), untrusted);
}

absl::StatusOr<Value> Int(const Context& context, absl::string_view name, const Value& subject,
                          const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"default", "base"}));
  if (bound[1] != nullptr && !Equals(*bound[1], Value::Int(10))) {
    return Failure("'int' with a base is not supported");
  }
  const Value fallback = bound[0] != nullptr ? *bound[0] : Value::Int(0);
  if (subject.IsIntegral()) return Value::Int(subject.integer(), subject.untrusted());
  if (subject.Is(Kind::kBigInt)) return subject;
  if (subject.Is(Kind::kFloat)) return FloatToInt(subject.real(), subject.untrusted());
  if (subject.Is(Kind::kUndefined)) return Failure(absl::StrCat(subject.label(), " is undefined"));
  if (!subject.Is(Kind::kString)) return fallback;
  RETURN_IF_ERROR(RefuseOdd(subject.text()));
  const std::string digits = Digits(subject.text().view());
  const bool users = subject.text().AnyUntrusted();
  int64_t number = 0;
  double real = 0;
  if (absl::SimpleAtoi(digits, &number)) return Value::Int(number, users);
  if (absl::SimpleAtod(digits, &real)) return FloatToInt(real, users);
  return fallback;
}

absl::StatusOr<Value> Float(const Context& context, absl::string_view name, const Value& subject,
                            const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"default"}));
  if (subject.IsNumber()) return Value::Float(subject.real(), subject.untrusted());
  if (subject.Is(Kind::kUndefined)) return Failure(absl::StrCat(subject.label(), " is undefined"));
  if (subject.Is(Kind::kString)) {
    RETURN_IF_ERROR(RefuseOdd(subject.text()));
    double real = 0;
    if (absl::SimpleAtod(Digits(subject.text().view()), &real)) {
      return Value::Float(real, subject.text().AnyUntrusted());
    }
  }
  return bound[0] != nullptr ? *bound[0] : Value::Float(0);
}

absl::StatusOr<Value> Abs(const Context& context, absl::string_view name, const Value& subject,
                          const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  if (!subject.IsNumber()) return Failure(absl::StrCat("'abs' of ", subject.TypeName()));
  if (subject.Is(Kind::kFloat)) return Value::Float(std::abs(subject.real()), subject.untrusted());
  return subject.integer() < 0 ? Negate(subject)
                               : Value::Int(subject.integer(), subject.untrusted());
}

absl::StatusOr<Value> Round(const Context& context, absl::string_view name, const Value& subject,
                            const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"precision", "method"}));
  if (bound[1] != nullptr) return Failure("'round' with a method is not supported");
  ASSIGN_OR_RETURN(const int64_t precision, IntegerArgument(bound[0], 0, name));
  if (!subject.IsNumber()) return Failure(absl::StrCat("'round' of ", subject.TypeName()));
  if (precision < 0 || precision > 15) return Failure("'round' to such a precision");
  if (subject.IsIntegral()) return Value::Int(subject.integer(), subject.untrusted());
  if (!std::isfinite(subject.real())) return subject;
  // printf rounds the exact binary value, ties to even, as Python does.
  char buffer[400];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), subject.real());
  return Value::Float(std::strtod(buffer, nullptr), subject.untrusted());
}

constexpr NamedFilter kNumberFilters[] = {
    {"int", Int}, {"float", Float}, {"abs", Abs}, {"round", Round}};

}  // namespace

FilterBody FindNumberFilter(absl::string_view name) { return FindIn(kNumberFilters, name); }

}  // namespace tessera::decode::jinja
