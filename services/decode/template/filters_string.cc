#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/filter_tables.h"
#include "services/decode/template/operators.h"
#include "services/decode/template/print.h"
#include "services/decode/template/strings.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

absl::StatusOr<Value> Case(const Context& context, absl::string_view name, const Value& subject,
                           const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  ASSIGN_OR_RETURN(const Text text, Str(context, subject));
  if (name == "upper") return MapCase(context, text, UpperOf);
  if (name == "lower") return Lower(context, text);
  return name == "title" ? TitleFilter(context, text) : Capitalize(context, text);
}

absl::StatusOr<Value> Trim(const Context& context, absl::string_view name, const Value& subject,
                           const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"chars"}));
  ASSIGN_OR_RETURN(const Text text, Str(context, subject));
  if (bound[0] == nullptr || bound[0]->Is(Kind::kNone)) {
    return Strip(context, text, nullptr, true, true);
  }
  if (!bound[0]->Is(Kind::kString)) return Failure("'trim' takes a string of characters");
  return Strip(context, text, &bound[0]->text(), true, true);
}

absl::StatusOr<Value> ReplaceFilter(const Context& context, absl::string_view name,
                                    const Value& subject, const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const Text text, Str(context, subject));
  ASSIGN_OR_RETURN(const Text from, Str(context, *bound[0]));
  ASSIGN_OR_RETURN(const Text to, Str(context, *bound[1]));
  int64_t count = -1;
  if (bound[2] != nullptr && !bound[2]->Is(Kind::kNone)) {
    ASSIGN_OR_RETURN(count, IntegerArgument(bound[2], -1, name));
  }
  return Replace(context, text, from, to, count);
}

absl::StatusOr<Value> String(const Context& context, absl::string_view name, const Value& subject,
                             const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  ASSIGN_OR_RETURN(Text text, Str(context, subject));
  return context.String(std::move(text));
}

absl::StatusOr<Value> Indent(const Context& context, absl::string_view name, const Value& subject,
                             const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"width", "first", "blank"}));
  if (!subject.Is(Kind::kString)) return Failure("'indent' takes a string");
  Text indent;
  if (bound[0] != nullptr && bound[0]->Is(Kind::kString)) {
    indent = bound[0]->text();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, IntegerArgument(bound[0], 4, name));
    if (width > 1000) return Failure("'indent' by more than 1000");
    indent = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  }
  Text padded = subject.text();
  padded.Append("\n", false);
  ASSIGN_OR_RETURN(const Items lines, SplitLines(context, padded, false));
  // Whoever wrote the text chose where its lines break.
  const bool users = subject.text().AnyUntrusted();
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) RETURN_IF_ERROR(context.Append(&out, "\n", users));
    const bool skip =
        (i == 0 && !Flag(bound[1])) || (i > 0 && lines[i].text().empty() && !Flag(bound[2]));
    if (!skip) RETURN_IF_ERROR(context.Append(&out, indent.view(), users || indent.AnyUntrusted()));
    RETURN_IF_ERROR(context.Append(&out, lines[i].text()));
  }
  return context.String(std::move(out));
}

absl::StatusOr<Value> WordCount(const Context& context, absl::string_view name,
                                const Value& subject, const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  ASSIGN_OR_RETURN(const Text text, Str(context, subject));
  int64_t count = 0;
  bool inside = false;
  for (const char c : text.bytes()) {
    if ((c & 0x80) != 0) return Failure("'wordcount' of characters beyond ASCII is not supported");
    const bool word =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    count += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::Int(count);
}

absl::StatusOr<Value> Format(const Context& context, absl::string_view name, const Value& subject,
                             const Args& args) {
  if (!args.keywords.empty()) return Failure("'format' with named values is not supported");
  ASSIGN_OR_RETURN(const Text pattern, Str(context, subject));
  return FormatPercent(context, pattern, args.positional);
}

absl::StatusOr<Value> ToJson(const Context& context, absl::string_view name, const Value& subject,
                             const Args& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   args.Bind(name, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ascii = Flag(bound[0]);
  style.sort_keys = Flag(bound[3]);
  if (bound[2] != nullptr && !bound[2]->Is(Kind::kNone)) {
    return Failure("'tojson' with separators is not supported");
  }
  if (bound[1] != nullptr && !bound[1]->Is(Kind::kNone)) {
    ASSIGN_OR_RETURN(const int64_t indent, IntegerArgument(bound[1], 0, name));
    if (indent > 100) return Failure("'tojson' with an indent of more than 100");
    style.indent = static_cast<int>(std::max<int64_t>(indent, 0));
  }
  Text out;
  RETURN_IF_ERROR(AppendJson(context, subject, style, &out));
  return context.String(std::move(out));
}

constexpr NamedFilter kStringFilters[] = {
    {"upper", Case},      {"lower", Case},    {"title", Case},
    {"capitalize", Case}, {"trim", Trim},     {"replace", ReplaceFilter},
    {"string", String},   {"indent", Indent}, {"wordcount", WordCount},
    {"format", Format},   {"tojson", ToJson}};

}  // namespace

FilterBody FindStringFilter(absl::string_view name) { return FindIn(kStringFilters, name); }

}  // namespace tessera::decode::jinja
