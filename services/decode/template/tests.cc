#include "services/decode/template/tests.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/access.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/operators.h"
#include "services/decode/template/print.h"

namespace tessera::decode::jinja {
namespace {

bool IsPlainSequence(const Value& value) {
  return value.Is(Kind::kString) || value.Is(Kind::kDict) || value.Is(Kind::kUndefined) ||
         (value.Is(Kind::kSequence) && value.flavor() != Flavor::kGenerator &&
          value.flavor() != Flavor::kView);
}

// Tests without arguments.
struct Predicate {
  absl::string_view name;
  bool (*holds)(const Value&);
};

constexpr Predicate kPredicates[] = {
    {"defined", [](const Value& v) { return !v.Is(Kind::kUndefined); }},
    {"undefined", [](const Value& v) { return v.Is(Kind::kUndefined); }},
    {"none", [](const Value& v) { return v.Is(Kind::kNone); }},
    {"string", [](const Value& v) { return v.Is(Kind::kString); }},
    {"number", [](const Value& v) { return v.IsNumber() || v.Is(Kind::kBigInt); }},
    {"integer", [](const Value& v) { return v.Is(Kind::kInt) || v.Is(Kind::kBigInt); }},
    {"float", [](const Value& v) { return v.Is(Kind::kFloat); }},
    {"boolean", [](const Value& v) { return v.Is(Kind::kBool); }},
    {"true", [](const Value& v) { return v.Is(Kind::kBool) && v.boolean(); }},
    {"false", [](const Value& v) { return v.Is(Kind::kBool) && !v.boolean(); }},
    {"mapping", [](const Value& v) { return v.Is(Kind::kDict); }},
    {"sequence", IsPlainSequence},
    {"iterable",
     [](const Value& v) {
       return IsPlainSequence(v) || v.Is(Kind::kSequence) || v.Is(Kind::kLoop);
     }},
    {"callable", [](const Value& v) {
       return v.Is(Kind::kMacro) || v.Is(Kind::kFunction) || v.Is(Kind::kMethod) ||
              v.Is(Kind::kLoop) || v.Is(Kind::kUndefined);
     }}};

struct Comparison {
  absl::string_view name;
  Op op;
};

constexpr Comparison kComparisonTests[] = {
    {"eq", Op::kEq}, {"equalto", Op::kEq},     {"==", Op::kEq}, {"ne", Op::kNe},
    {"!=", Op::kNe}, {"lt", Op::kLt},          {"<", Op::kLt},  {"lessthan", Op::kLt},
    {"le", Op::kLe}, {"<=", Op::kLe},          {"gt", Op::kGt}, {">", Op::kGt},
    {"ge", Op::kGe}, {"greaterthan", Op::kGt}, {">=", Op::kGe}, {"in", Op::kIn}};

constexpr absl::string_view kOthers[] = {"odd", "even", "divisibleby", "upper", "lower", "sameas"};

template <typename Table>
auto FindNamed(const Table& table, absl::string_view name) {
  return std::find_if(std::begin(table), std::end(table),
                      [name](const auto& entry) { return entry.name == name; });
}

absl::StatusOr<bool> Divides(const Context& context, const Value& value, const Value& divisor,
                             int64_t rest) {
  ASSIGN_OR_RETURN(const Value left, Arithmetic(context, Op::kMod, value, divisor));
  return Equals(left, Value::Int(rest));
}

absl::StatusOr<bool> HasCase(const Context& context, absl::string_view method,
                             const Value& subject) {
  ASSIGN_OR_RETURN(Text text, Str(context, subject));
  ASSIGN_OR_RETURN(const Value result,
                   CallMethod(context, Value::String(std::move(text)), method, Args()));
  return result.boolean();
}

absl::StatusOr<bool> SameAs(const Value& a, const Value& b) {
  const auto single = [](const Value& value) {
    return value.Is(Kind::kNone) || value.Is(Kind::kBool);
  };
  if (!single(a) && !single(b)) return Failure("test 'sameas' is for none, true and false only");
  return a.kind() == b.kind() && Equals(a, b);
}

}  // namespace

bool IsTest(absl::string_view name) {
  return FindNamed(kPredicates, name) != std::end(kPredicates) ||
         FindNamed(kComparisonTests, name) != std::end(kComparisonTests) ||
         std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers);
}

absl::StatusOr<bool> CallTest(const Context& context, absl::string_view name, const Value& subject,
                              const Args& args) {
  if (const auto* test = FindNamed(kPredicates, name); test != std::end(kPredicates)) {
    RETURN_IF_ERROR(args.Bind(name, {}).status());
    return test->holds(subject);
  }
  if (const auto* test = FindNamed(kComparisonTests, name); test != std::end(kComparisonTests)) {
    ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"other"}, 1));
    return CompareValues(context, test->op, subject, *bound[0]);
  }
  if (name == "odd" || name == "even") {
    RETURN_IF_ERROR(args.Bind(name, {}).status());
    return Divides(context, subject, Value::Int(2), name == "odd" ? 1 : 0);
  }
  if (name == "upper" || name == "lower") {
    RETURN_IF_ERROR(args.Bind(name, {}).status());
    return HasCase(context, name == "upper" ? "isupper" : "islower", subject);
  }
  if (name == "divisibleby" || name == "sameas") {
    ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {name == "sameas" ? "other" : "num"}, 1));
    if (name == "sameas") return SameAs(subject, *bound[0]);
    return Divides(context, subject, *bound[0], 0);
  }
  return Failure(absl::StrCat("unknown test '", name, "'"));
}

}  // namespace tessera::decode::jinja
