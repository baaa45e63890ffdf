#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/access.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/strings.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

using Bound = std::vector<const Value*>;
using StringMethod = absl::StatusOr<Value> (*)(const Context&, const Text&, absl::string_view,
                                               const Args&);

absl::StatusOr<const Text*> TextOf(const Value* value, absl::string_view what) {
  if (value == nullptr || value->Is(Kind::kNone)) return nullptr;
  if (value->Is(Kind::kString)) return &value->text();
  return Failure(absl::StrCat(what, ": expected str, found ", value->TypeName()));
}

absl::StatusOr<int64_t> IntegerOr(const Value* value, int64_t fallback, absl::string_view what) {
  if (value == nullptr) return fallback;
  if (value->IsIntegral()) return value->integer();
  return Failure(absl::StrCat(what, ": expected int, found ", value->TypeName()));
}

absl::StatusOr<Value> CaseMethod(const Context& context, const Text& text, absl::string_view name,
                                 const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  if (name == "upper") return MapCase(context, text, UpperOf);
  if (name == "lower") return Lower(context, text);
  return name == "title" ? TitleMethod(context, text) : Capitalize(context, text);
}

absl::StatusOr<Value> StripMethod(const Context& context, const Text& text, absl::string_view name,
                                  const Args& args) {
  ASSIGN_OR_RETURN(const Bound bound, args.Bind(name, {"chars"}));
  ASSIGN_OR_RETURN(const Text* chars, TextOf(bound[0], name));
  return Strip(context, text, chars, name != "rstrip", name != "lstrip");
}

absl::StatusOr<Value> SplitMethod(const Context& context, const Text& text, absl::string_view name,
                                  const Args& args) {
  ASSIGN_OR_RETURN(const Bound bound, args.Bind(name, {"sep", "maxsplit"}));
  ASSIGN_OR_RETURN(const Text* separator, TextOf(bound[0], name));
  ASSIGN_OR_RETURN(const int64_t limit, IntegerOr(bound[1], -1, name));
  return Split(context, text, separator, limit, name == "rsplit");
}

absl::StatusOr<Value> SplitLinesMethod(const Context& context, const Text& text,
                                       absl::string_view name, const Args& args) {
  ASSIGN_OR_RETURN(const Bound bound, args.Bind(name, {"keepends"}));
  ASSIGN_OR_RETURN(Items lines,
                   SplitLines(context, text, bound[0] != nullptr && bound[0]->Truth()));
  ASSIGN_OR_RETURN(Value list, context.Sequence(Flavor::kList, std::move(lines)));
  return text.AnyUntrusted() ? list.WithUntrustedShape() : list;
}

absl::StatusOr<Value> AffixMethod(const Context& context, const Text& text, absl::string_view name,
                                  const Args& args) {
  ASSIGN_OR_RETURN(const Bound bound, args.Bind(name, {"affix"}, 1));
  const bool tuple = bound[0]->Is(Kind::kSequence) && bound[0]->flavor() == Flavor::kTuple;
  const Items choices = tuple ? bound[0]->items() : Items{*bound[0]};
  bool found = false;
  for (const Value& choice : choices) {
    if (!choice.Is(Kind::kString)) {
      return Failure(absl::StrCat(name, ": expected str, found ", choice.TypeName()));
    }
    found |= name == "startswith" ? absl::StartsWith(text.view(), choice.text().view())
                                  : absl::EndsWith(text.view(), choice.text().view());
  }
  return Value::Bool(found);
}

absl::StatusOr<Value> RemoveMethod(const Context& context, const Text& text, absl::string_view name,
                                   const Args& args) {
  ASSIGN_OR_RETURN(const Bound bound, args.Bind(name, {"affix"}, 1));
  ASSIGN_OR_RETURN(const Text* affix, TextOf(bound[0], name));
  if (affix == nullptr) return Failure(absl::StrCat(name, ": expected str, found None"));
  if (name == "removeprefix") {
    const bool has = absl::StartsWith(text.view(), affix->view());
    return context.String(text.Sub(has ? affix->size() : 0, text.size()));
  }
  const bool has = absl::EndsWith(text.view(), affix->view());
  return context.String(text.Sub(0, text.size() - (has ? affix->size() : 0)));
}

absl::StatusOr<Value> ReplaceMethod(const Context& context, const Text& text,
                                    absl::string_view name, const Args& args) {
  ASSIGN_OR_RETURN(const Bound bound, args.Bind(name, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const Text* from, TextOf(bound[0], name));
  ASSIGN_OR_RETURN(const Text* to, TextOf(bound[1], name));
  ASSIGN_OR_RETURN(const int64_t count, IntegerOr(bound[2], -1, name));
  if (from == nullptr || to == nullptr) return Failure("replace: expected str, found None");
  return Replace(context, text, *from, *to, count);
}

absl::StatusOr<Value> JoinMethod(const Context& context, const Text& text, absl::string_view name,
                                 const Args& args) {
  ASSIGN_OR_RETURN(const Bound bound, args.Bind(name, {"iterable"}, 1));
  return Join(context, *bound[0], text, true);
}

absl::StatusOr<Value> FindMethod(const Context& context, const Text& text, absl::string_view name,
                                 const Args& args) {
  ASSIGN_OR_RETURN(const Bound bound, args.Bind(name, {"part"}, 1));
  ASSIGN_OR_RETURN(const Text* part, TextOf(bound[0], name));
  if (part == nullptr) return Failure(absl::StrCat(name, ": expected str, found None"));
  if (name == "count") return Value::Int(CountParts(text.view(), part->view()));
  const bool last = name == "rfind" || name == "rindex";
  const size_t found =
      last ? text.view().rfind(part->view()) : FindPart(text.view(), part->view(), 0);
  if (found != absl::string_view::npos) {
    return Value::Int(static_cast<int64_t>(CountChars(text.view().substr(0, found))));
  }
  if (name == "index" || name == "rindex") return Failure("index: the text is not there");
  return Value::Int(-1);
}

absl::StatusOr<Value> FormatMethod(const Context& context, const Text& text, absl::string_view name,
                                   const Args& args) {
  return FormatBraces(context, text, args.positional, args.keywords);
}

absl::StatusOr<Value> IsMethod(const Context& context, const Text& text, absl::string_view name,
                               const Args& args) {
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  bool all = !text.empty();
  bool cased = false;
  for (size_t at = 0; at < text.size();) {
    const Char character = CharAt(text.view(), at);
    const uint32_t code = character.code;
    at += character.bytes;
    if (name == "isspace") {
      all &= IsSpace(code);
      continue;
    }
    if (code >= 0x80) {
      return Failure(absl::StrCat(name, " of characters beyond ASCII is not supported"));
    }
    const char c = static_cast<char>(code);
    if (name == "isdigit" || name == "isdecimal" || name == "isnumeric") {
      all &= absl::ascii_isdigit(c);
    } else if (name == "isalpha") {
      all &= absl::ascii_isalpha(c);
    } else if (name == "isalnum") {
      all &= absl::ascii_isalnum(c);
    } else {
      cased |= absl::ascii_isalpha(c);
      all &= name == "isupper" ? !absl::ascii_islower(c) : !absl::ascii_isupper(c);
    }
  }
  const bool letters = name == "isupper" || name == "islower";
  return Value::Bool(all && (!letters || cased));
}

struct NamedMethod {
  absl::string_view name;
  StringMethod body;  // null: Python has it, we do not
};

constexpr NamedMethod kStringMethods[] = {{"upper", CaseMethod},
                                          {"lower", CaseMethod},
                                          {"title", CaseMethod},
                                          {"capitalize", CaseMethod},
                                          {"strip", StripMethod},
                                          {"lstrip", StripMethod},
                                          {"rstrip", StripMethod},
                                          {"split", SplitMethod},
                                          {"rsplit", SplitMethod},
                                          {"splitlines", SplitLinesMethod},
                                          {"startswith", AffixMethod},
                                          {"endswith", AffixMethod},
                                          {"removeprefix", RemoveMethod},
                                          {"removesuffix", RemoveMethod},
                                          {"replace", ReplaceMethod},
                                          {"join", JoinMethod},
                                          {"find", FindMethod},
                                          {"rfind", FindMethod},
                                          {"index", FindMethod},
                                          {"rindex", FindMethod},
                                          {"count", FindMethod},
                                          {"format", FormatMethod},
                                          {"isspace", IsMethod},
                                          {"isdigit", IsMethod},
                                          {"isdecimal", IsMethod},
                                          {"isnumeric", IsMethod},
                                          {"isalpha", IsMethod},
                                          {"isalnum", IsMethod},
                                          {"isupper", IsMethod},
                                          {"islower", IsMethod},
                                          {"casefold", nullptr},
                                          {"center", nullptr},
                                          {"encode", nullptr},
                                          {"expandtabs", nullptr},
                                          {"format_map", nullptr},
                                          {"isascii", nullptr},
                                          {"isidentifier", nullptr},
                                          {"isprintable", nullptr},
                                          {"istitle", nullptr},
                                          {"ljust", nullptr},
                                          {"maketrans", nullptr},
                                          {"partition", nullptr},
                                          {"rjust", nullptr},
                                          {"rpartition", nullptr},
                                          {"swapcase", nullptr},
                                          {"translate", nullptr},
                                          {"zfill", nullptr}};

constexpr absl::string_view kDictMethods[] = {"get",     "items",      "keys",     "values",
                                              "copy",    "clear",      "fromkeys", "pop",
                                              "popitem", "setdefault", "update"};
constexpr absl::string_view kListMethods[] = {"count",  "index",   "append", "clear",
                                              "copy",   "extend",  "insert", "pop",
                                              "remove", "reverse", "sort"};

template <size_t N>
bool In(const absl::string_view (&names)[N], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

absl::Status Unsupported(const Value& self, absl::string_view name) {
  return Failure(absl::StrCat("method '", name, "' of ", self.TypeName(),
                              " is not supported (or changes its object)"));
}

absl::StatusOr<Value> DictMethod(const Context& context, const Value& self, absl::string_view name,
                                 const Args& args) {
  if (name == "get") {
    ASSIGN_OR_RETURN(const Bound bound, args.Bind(name, {"key", "default"}, 1));
    if (!IsHashable(*bound[0])) return Failure("get: a list or dict cannot be a key");
    RETURN_IF_ERROR(context.budget.Steps(self.weight() / 8));
    if (const Value* item = self.Find(*bound[0]); item != nullptr) return *item;
    return bound[1] != nullptr ? *bound[1] : Value::None();
  }
  if (name == "copy") return self;
  RETURN_IF_ERROR(args.Bind(name, {}).status());
  RETURN_IF_ERROR(context.budget.Bytes(self.entries().size() * sizeof(Value)));
  Items items;
  for (const auto& [key, item] : self.entries()) {
    if (name == "keys") items.push_back(key);
    if (name == "values") items.push_back(item);
    if (name == "items") items.push_back(Value::Sequence(Flavor::kTuple, {key, item}));
  }
  return Value::Sequence(Flavor::kView, std::move(items), absl::StrCat("dict_", name));
}

absl::StatusOr<Value> ListMethod(const Context& context, const Value& self, absl::string_view name,
                                 const Args& args) {
  ASSIGN_OR_RETURN(const Bound bound, args.Bind(name, {"value"}, 1));
  RETURN_IF_ERROR(context.budget.Steps(self.weight()));
  int64_t count = 0;
  for (size_t i = 0; i < self.items().size(); ++i) {
    if (!Equals(self.items()[i], *bound[0])) continue;
    if (name == "index") return Value::Int(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") return Failure("index: the value is not in the list");
  return Value::Int(count);
}

}  // namespace

bool HasMethod(const Value& value, absl::string_view name) {
  if (value.Is(Kind::kString)) {
    return std::any_of(std::begin(kStringMethods), std::end(kStringMethods),
                       [name](const NamedMethod& method) { return method.name == name; });
  }
  if (value.Is(Kind::kDict)) return In(kDictMethods, name);
  if (!value.Is(Kind::kSequence)) return false;
  if (value.flavor() == Flavor::kList) return In(kListMethods, name);
  return value.flavor() == Flavor::kTuple && (name == "count" || name == "index");
}

absl::StatusOr<Value> CallMethod(const Context& context, const Value& self, absl::string_view name,
                                 const Args& args) {
  RETURN_IF_ERROR(context.budget.Steps(self.Is(Kind::kString) ? self.weight() : 1));
  if (self.Is(Kind::kString)) {
    for (const NamedMethod& method : kStringMethods) {
      if (method.name == name && method.body != nullptr) {
        return method.body(context, self.text(), name, args);
      }
    }
  }
  if (self.Is(Kind::kDict) &&
      (name == "get" || name == "items" || name == "keys" || name == "values" || name == "copy")) {
    return DictMethod(context, self, name, args);
  }
  if (self.Is(Kind::kSequence) && (name == "count" || name == "index")) {
    return ListMethod(context, self, name, args);
  }
  return Unsupported(self, name);
}

}  // namespace tessera::decode::jinja
