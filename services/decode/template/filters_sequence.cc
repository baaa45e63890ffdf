#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/access.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/filter_tables.h"
#include "services/decode/template/filters.h"
#include "services/decode/template/strings.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

absl::StatusOr<Value> Length(const Context& context, absl::string_view name, const Value& subject,
                             const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  switch (subject.kind()) {
    case Kind::kUndefined:
      return Value::Int(0);
    case Kind::kString:
      return Value::Int(static_cast<int64_t>(CountChars(subject.text().view())));
    case Kind::kDict:
      return Value::Int(static_cast<int64_t>(subject.entries().size()));
    case Kind::kSequence:
      if (subject.flavor() != Flavor::kGenerator) {
        return Value::Int(static_cast<int64_t>(subject.items().size()));
      }
      [[fallthrough]];
    default:
      return Failure(absl::StrCat("a ", subject.TypeName(), " has no length"));
  }
}

absl::StatusOr<Value> List(const Context& context, absl::string_view name, const Value& subject,
                           const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  ASSIGN_OR_RETURN(Items items, context.Iterate(subject));
  ASSIGN_OR_RETURN(Value list, context.Sequence(Flavor::kList, std::move(items)));
  return subject.untrusted_shape() ? list.WithUntrustedShape() : list;
}

absl::StatusOr<Value> Ends(const Context& context, absl::string_view name, const Value& subject,
                           const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  if (subject.Is(Kind::kSequence) && subject.flavor() == Flavor::kGenerator && name == "last") {
    return Failure("'last' of a generator: use | list | last");
  }
  ASSIGN_OR_RETURN(const Items items, context.Iterate(subject));
  if (items.empty()) return Value::Undefined(absl::StrCat("the ", name, " item of nothing"));
  return name == "first" ? items.front() : items.back();
}

absl::StatusOr<Value> Reverse(const Context& context, absl::string_view name, const Value& subject,
                              const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  ASSIGN_OR_RETURN(Items items, context.Iterate(subject));
  std::reverse(items.begin(), items.end());
  if (!subject.Is(Kind::kString)) return context.Sequence(Flavor::kGenerator, std::move(items));
  Text text;
  for (const Value& character : items) RETURN_IF_ERROR(context.Append(&text, character.text()));
  return context.String(std::move(text));
}

absl::StatusOr<Value> JoinFilter(const Context& context, absl::string_view name,
                                 const Value& subject, const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"d", "attribute"}));
  Text separator;
  if (bound[0] != nullptr) {
    ASSIGN_OR_RETURN(const Value text, CallFilter(context, "string", *bound[0], Args()));
    separator = text.text();
  }
  if (bound[1] == nullptr || bound[1]->Is(Kind::kNone)) {
    return Join(context, subject, separator, false);
  }
  ASSIGN_OR_RETURN(Items items, context.Iterate(subject));
  for (Value& item : items) {
    ASSIGN_OR_RETURN(item, GetPath(context, item, *bound[1]));
  }
  ASSIGN_OR_RETURN(const Value list, context.Sequence(Flavor::kList, std::move(items)));
  return Join(context, list, separator, false);
}

absl::StatusOr<Value> DictItems(const Context& context, absl::string_view name,
                                const Value& subject, const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  if (subject.Is(Kind::kUndefined)) return context.Sequence(Flavor::kGenerator, {});
  if (!subject.Is(Kind::kDict)) return Failure("'items' of something that is no mapping");
  ASSIGN_OR_RETURN(const Value view, CallMethod(context, subject, "items", Args()));
  return context.Sequence(Flavor::kGenerator, view.items());
}

absl::StatusOr<Value> Batch(const Context& context, absl::string_view name, const Value& subject,
                            const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"linecount"}, 1));
  ASSIGN_OR_RETURN(const int64_t size, IntegerArgument(bound[0], 1, name));
  if (size < 1) return Failure("'batch' into rows of less than one");
  ASSIGN_OR_RETURN(const Items items, context.Iterate(subject));
  Items rows;
  for (size_t at = 0; at < items.size();) {
    const size_t end = static_cast<uint64_t>(size) < items.size() - at
                           ? at + static_cast<size_t>(size)
                           : items.size();
    ASSIGN_OR_RETURN(
        Value row, context.Sequence(Flavor::kList, Items(items.begin() + at, items.begin() + end)));
    rows.push_back(std::move(row));
    at = end;
  }
  return context.Sequence(Flavor::kGenerator, std::move(rows));
}

absl::StatusOr<Value> Default(const Context& context, absl::string_view name, const Value& subject,
                              const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"default_value", "boolean"}));
  const bool use = subject.Is(Kind::kUndefined) || (Flag(bound[1]) && !subject.Truth());
  if (!use) return subject;
  return bound[0] != nullptr ? *bound[0] : Value::String("");
}

constexpr NamedFilter kSequenceFilters[] = {
    {"length", Length}, {"count", Length},    {"list", List},       {"first", Ends},
    {"last", Ends},     {"reverse", Reverse}, {"join", JoinFilter}, {"items", DictItems},
    {"batch", Batch},   {"default", Default}, {"d", Default}};

}  // namespace

FilterBody FindSequenceFilter(absl::string_view name) { return FindIn(kSequenceFilters, name); }

}  // namespace tessera::decode::jinja
