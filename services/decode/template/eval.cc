#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/access.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/filters.h"
#include "services/decode/template/interpreter.h"
#include "services/decode/template/operators.h"
#include "services/decode/template/print.h"
#include "services/decode/template/tests.h"

namespace tessera::decode::jinja {

absl::StatusOr<Value> Interpreter::Eval(const Expr& expr, const ScopePtr& scope) {
  if (expr.kind == ExprKind::kConst) return expr.value;
  absl::Status status = budget_.Enter();
  if (status.ok()) status = budget_.Steps();
  if (!status.ok()) {
    budget_.Leave();
    return AtLine(status, expr.line);
  }
  absl::StatusOr<Value> value = Dispatch(expr, scope);
  budget_.Leave();
  if (!value.ok()) return AtLine(value.status(), expr.line);
  return value;
}

absl::StatusOr<Value> Interpreter::Dispatch(const Expr& expr, const ScopePtr& scope) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.value;
    case ExprKind::kName:
      return Lookup(expr, scope);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return Collect(expr, scope);
    case ExprKind::kDict:
      return MakeDict(expr, scope);
    case ExprKind::kAttr:
      return Attribute(expr, scope);
    case ExprKind::kItem:
      return Item(expr, scope);
    case ExprKind::kSlice:
      return SliceOf(expr, scope);
    case ExprKind::kCall:
      return CallExpr(expr, scope, nullptr);
    case ExprKind::kFilter:
      return Filter(expr, scope);
    case ExprKind::kTest:
      return Test(expr, scope);
    case ExprKind::kUnary:
      return Unary(expr, scope);
    case ExprKind::kBinary:
      return Binary(expr, scope);
    case ExprKind::kCompare:
      return Compare(expr, scope);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return Logic(expr, scope);
    case ExprKind::kConcat:
      return Concat(expr, scope);
    case ExprKind::kCond:
      return Conditional(expr, scope);
  }
  return Failure("unknown expression");
}

absl::StatusOr<Value> Interpreter::Lookup(const Expr& expr, const ScopePtr& scope) {
  if (const Value* value = scope->Find(expr.name); value != nullptr) return *value;
  static constexpr absl::string_view kFunctions[] = {"raise_exception", "range", "namespace",
                                                     "dict"};
  for (const absl::string_view name : kFunctions) {
    if (name != expr.name) continue;
    const Value label = Value::Undefined(name);
    return Value::FromObject(Kind::kFunction, label.shared());
  }
  static constexpr absl::string_view kUnsupported[] = {
      "cycler", "joiner", "lipsum", "strftime_now", "self", "varargs", "kwargs"};
  for (const absl::string_view name : kUnsupported) {
    if (name == expr.name) return Failure(absl::StrCat("'", name, "' is not supported"));
  }
  return Value::Undefined(absl::StrCat("'", expr.name, "'"));
}

absl::StatusOr<Value> Interpreter::Collect(const Expr& expr, const ScopePtr& scope) {
  Items items;
  for (const ExprPtr& arg : expr.args) {
    ASSIGN_OR_RETURN(Value item, Eval(*arg, scope));
    items.push_back(std::move(item));
  }
  return context_.Sequence(expr.kind == ExprKind::kList ? Flavor::kList : Flavor::kTuple,
                           std::move(items));
}

absl::StatusOr<Value> Interpreter::MakeDict(const Expr& expr, const ScopePtr& scope) {
  Entries entries;
  for (size_t i = 0; i < expr.args.size(); i += 2) {
    ASSIGN_OR_RETURN(Value key, Eval(*expr.args[i], scope));
    ASSIGN_OR_RETURN(Value value, Eval(*expr.args[i + 1], scope));
    if (!IsHashable(key)) return Failure("a list or dict cannot be a key");
    RETURN_IF_ERROR(budget_.Steps(static_cast<int64_t>(entries.size()) + key.weight()));
    auto place = entries.begin();
    while (place != entries.end() && !Equals(place->first, key)) ++place;
    if (place != entries.end()) {
      place->second = std::move(value);
    } else {
      entries.emplace_back(std::move(key), std::move(value));
    }
  }
  return context_.Dict(std::move(entries));
}

absl::StatusOr<Value> Interpreter::Attribute(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0], scope));
  if (value.Is(Kind::kLoop)) {
    return LoopAttribute(static_cast<LoopObject*>(value.object()), expr.name);
  }
  if (value.Is(Kind::kMacro) && expr.name == "name") {
    return Value::String(static_cast<MacroObject*>(value.object())->macro->name);
  }
  return GetAttribute(context_, value, expr.name);
}

absl::StatusOr<Value> Interpreter::Item(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0], scope));
  ASSIGN_OR_RETURN(const Value key, Eval(*expr.args[1], scope));
  if (value.Is(Kind::kLoop) && key.Is(Kind::kString)) {
    return LoopAttribute(static_cast<LoopObject*>(value.object()), key.text().view());
  }
  return GetItem(context_, value, key);
}

absl::StatusOr<Value> Interpreter::SliceOf(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0], scope));
  Slice slice;
  std::optional<int64_t>* const places[] = {&slice.start, &slice.stop, &slice.step};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.args[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(const Value bound, Eval(*expr.args[i + 1], scope));
    if (bound.Is(Kind::kNone)) continue;
    if (!bound.IsIntegral()) return Failure("the bounds of a slice are integers");
    *places[i] = bound.integer();
  }
  return GetSlice(context_, value, slice);
}

absl::StatusOr<Value> Interpreter::Unary(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0], scope));
  if (expr.ops[0] == Op::kNot) return Value::Bool(!value.Truth());
  if (expr.ops[0] == Op::kNeg) return Negate(value);
  if (!value.IsNumber()) return Failure(absl::StrCat("unary + of ", value.TypeName()));
  return value.Is(Kind::kBool) ? Value::Int(value.integer()) : value;
}

absl::StatusOr<Value> Interpreter::Binary(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value a, Eval(*expr.args[0], scope));
  ASSIGN_OR_RETURN(const Value b, Eval(*expr.args[1], scope));
  return Arithmetic(context_, expr.ops[0], a, b);
}

absl::StatusOr<Value> Interpreter::Compare(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(Value left, Eval(*expr.args[0], scope));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    ASSIGN_OR_RETURN(Value right, Eval(*expr.args[i + 1], scope));
    ASSIGN_OR_RETURN(const bool holds, CompareValues(context_, expr.ops[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Interpreter::Logic(const Expr& expr, const ScopePtr& scope) {
  const bool stop = expr.kind == ExprKind::kOr;
  Value value;
  for (const ExprPtr& arg : expr.args) {
    ASSIGN_OR_RETURN(value, Eval(*arg, scope));
    if (value.Truth() == stop) break;
  }
  return value;
}

absl::StatusOr<Value> Interpreter::Concat(const Expr& expr, const ScopePtr& scope) {
  Text text;
  for (const ExprPtr& arg : expr.args) {
    ASSIGN_OR_RETURN(const Value value, Eval(*arg, scope));
    RETURN_IF_ERROR(AppendStr(context_, value, &text));
  }
  return context_.String(std::move(text));
}

absl::StatusOr<Value> Interpreter::Conditional(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value condition, Eval(*expr.args[1], scope));
  if (condition.Truth()) return Eval(*expr.args[0], scope);
  if (expr.args[2] != nullptr) return Eval(*expr.args[2], scope);
  return Value::Undefined("the missing 'else'");
}

absl::StatusOr<Value> Interpreter::Filter(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value subject, Eval(*expr.args[0], scope));
  ASSIGN_OR_RETURN(const Args args, Arguments(expr, scope));
  return CallFilter(context_, expr.name, subject, args);
}

absl::StatusOr<Value> Interpreter::FilterChain(const Expr& expr, const Value& subject,
                                               const ScopePtr& scope) {
  Value inner = subject;
  if (expr.args[0] != nullptr) {
    ASSIGN_OR_RETURN(inner, FilterChain(*expr.args[0], subject, scope));
  }
  ASSIGN_OR_RETURN(const Args args, Arguments(expr, scope));
  absl::StatusOr<Value> value = CallFilter(context_, expr.name, inner, args);
  if (!value.ok()) return AtLine(value.status(), expr.line);
  return value;
}

absl::StatusOr<Value> Interpreter::Test(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value subject, Eval(*expr.args[0], scope));
  ASSIGN_OR_RETURN(const Args args, Arguments(expr, scope));
  ASSIGN_OR_RETURN(const bool holds, CallTest(context_, expr.name, subject, args));
  return Value::Bool(holds);
}

}  // namespace tessera::decode::jinja
