#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/operators.h"
#include "services/decode/template/print.h"
#include "services/decode/template/strings.h"

namespace tessera::decode::jinja {
namespace {

// `%d` and `%.2f`; `spec` is what stands between % and the letter.
absl::Status AppendNumber(const Context& context, char letter, absl::string_view spec,
                          const Value& value, Text* out) {
  if (!value.IsNumber()) {
    return Failure(absl::StrCat("format: a number is required, not ", value.TypeName()));
  }
  if (letter != 'f') {
    if (value.Is(Kind::kFloat) && !(std::abs(value.real()) < 9e18)) {
      return Failure("format: the number is too large for %d");
    }
    const int64_t number =
        value.Is(Kind::kFloat) ? static_cast<int64_t>(value.real()) : value.integer();
    return context.Append(out, absl::StrCat(number), value.untrusted());
  }
  int precision = 6;
  if (!spec.empty() &&
      (spec[0] != '.' || !absl::SimpleAtoi(spec.substr(1), &precision) || precision > 40)) {
    return Failure(absl::StrCat("format: '%", spec, "f' is not supported"));
  }
  return context.Append(out, absl::StrFormat("%.*f", precision, value.real()), value.untrusted());
}

absl::Status AppendConversion(const Context& context, char letter, absl::string_view spec,
                              const Value& value, Text* out) {
  const bool number = letter == 'd' || letter == 'i' || letter == 'f';
  if (!spec.empty() && letter != 'f') {
    return Failure(
        absl::StrCat("format: flags, widths and names ('%", spec, "') are not supported"));
  }
  if (number) return AppendNumber(context, letter, spec, value, out);
  if (letter == 's') return AppendStr(context, value, out);
  if (letter == 'r') return AppendRepr(context, value, out);
  return Failure(absl::StrCat("format: '%", absl::string_view(&letter, 1), "' is not supported"));
}

}  // namespace

absl::StatusOr<Value> FormatPercent(const Context& context, const Text& pattern,
                                    const Items& values) {
  const absl::string_view view = pattern.view();
  Text out;
  size_t used = 0;
  size_t at = 0;
  for (size_t mark = view.find('%'); mark != absl::string_view::npos; mark = view.find('%', at)) {
    RETURN_IF_ERROR(context.Append(&out, pattern, at, mark));
    size_t end = mark + 1;
    while (end < view.size() && !absl::ascii_isalpha(view[end]) && view[end] != '%') ++end;
    if (end == view.size()) return Failure("format: the pattern ends inside a conversion");
    at = end + 1;
    if (view[end] == '%') {
      if (end != mark + 1) return Failure("format: flags before %% are not supported");
      RETURN_IF_ERROR(context.Append(&out, pattern, end, end + 1));
      continue;
    }
    if (used == values.size()) return Failure("format: not enough values for the pattern");
    RETURN_IF_ERROR(AppendConversion(context, view[end], view.substr(mark + 1, end - mark - 1),
                                     values[used++], &out));
  }
  const bool mapping = values.size() == 1 && values[0].Is(Kind::kDict);
  if (used < values.size() && !mapping) return Failure("format: more values than the pattern has");
  RETURN_IF_ERROR(context.Append(&out, pattern, at, pattern.size()));
  return context.String(std::move(out));
}

absl::StatusOr<Value> FormatBraces(const Context& context, const Text& pattern,
                                   const Items& positional,
                                   const std::vector<std::pair<std::string, Value>>& keywords) {
  const absl::string_view view = pattern.view();
  Text out;
  size_t next = 0;
  size_t at = 0;
  for (size_t mark = view.find_first_of("{}"); mark != absl::string_view::npos;
       mark = view.find_first_of("{}", at)) {
    RETURN_IF_ERROR(context.Append(&out, pattern, at, mark));
    if (mark + 1 < view.size() && view[mark + 1] == view[mark]) {
      RETURN_IF_ERROR(context.Append(&out, pattern, mark, mark + 1));
      at = mark + 2;
      continue;
    }
    const size_t end = view.find('}', mark);
    if (view[mark] == '}' || end == absl::string_view::npos) {
      return Failure("format: a single brace in the pattern");
    }
    const absl::string_view field = view.substr(mark + 1, end - mark - 1);
    at = end + 1;
    const Value* value = nullptr;
    size_t place = next;
    if (field.empty() || absl::SimpleAtoi(field, &place)) {
      if (field.empty()) ++next;
      if (place < positional.size()) value = &positional[place];
    }
    for (const auto& [name, item] : keywords) {
      if (absl::string_view(name) == field) value = &item;
    }
    if (value == nullptr) {
      return Failure(
          absl::StrCat("format: no value for '{", field, "}' (specifications are not supported)"));
    }
    RETURN_IF_ERROR(AppendStr(context, *value, &out));
  }
  RETURN_IF_ERROR(context.Append(&out, pattern, at, pattern.size()));
  return context.String(std::move(out));
}

}  // namespace tessera::decode::jinja
