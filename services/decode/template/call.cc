#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/access.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/interpreter.h"
#include "services/decode/template/print.h"

namespace tessera::decode::jinja {

absl::StatusOr<Args> Interpreter::Arguments(const Expr& expr, const ScopePtr& scope) {
  Args args;
  for (size_t i = 1; i < expr.args.size(); ++i) {
    ASSIGN_OR_RETURN(Value value, Eval(*expr.args[i], scope));
    args.positional.push_back(std::move(value));
  }
  for (const auto& [name, arg] : expr.keywords) {
    ASSIGN_OR_RETURN(Value value, Eval(*arg, scope));
    args.keywords.emplace_back(name, std::move(value));
  }
  return args;
}

absl::StatusOr<Value> Interpreter::CallExpr(const Expr& expr, const ScopePtr& scope,
                                            const Value* caller) {
  const Expr& target = *expr.args[0];
  // loop.cycle and loop.changed are the only methods of a loop.
  if (target.kind == ExprKind::kAttr && (target.name == "cycle" || target.name == "changed")) {
    ASSIGN_OR_RETURN(const Value owner, Eval(*target.args[0], scope));
    if (owner.Is(Kind::kLoop) && caller == nullptr) {
      ASSIGN_OR_RETURN(const Args args, Arguments(expr, scope));
      return CallLoop(static_cast<LoopObject*>(owner.object()), target.name, args);
    }
  }
  ASSIGN_OR_RETURN(const Value callee, Eval(target, scope));
  ASSIGN_OR_RETURN(const Args args, Arguments(expr, scope));
  return Call(callee, args, caller);
}

absl::StatusOr<Value> Interpreter::Call(const Value& callee, const Args& args,
                                        const Value* caller) {
  if (callee.Is(Kind::kMacro)) {
    return CallMacro(*static_cast<MacroObject*>(callee.object()), args, caller);
  }
  if (caller != nullptr) return Failure("a call block needs a macro");
  if (callee.Is(Kind::kFunction)) return CallFunction(callee.label(), args);
  if (callee.Is(Kind::kMethod)) {
    const auto& method = *static_cast<MethodObject*>(callee.object());
    return CallMethod(context_, method.self, method.name, args);
  }
  if (callee.Is(Kind::kUndefined)) return Failure(absl::StrCat(callee.label(), " is undefined"));
  return Failure(absl::StrCat("a ", callee.TypeName(), " cannot be called"));
}

absl::StatusOr<Value> Interpreter::CallMacro(const MacroObject& object, const Args& args,
                                             const Value* caller) {
  const ScopePtr around = object.scope.lock();
  const Macro& macro = *object.macro;
  if (around == nullptr) {
    return Failure(absl::StrCat("macro '", macro.name, "' is called outside its block"));
  }
  std::vector<absl::string_view> names;
  for (const Param& param : macro.params) names.push_back(param.name);
  ASSIGN_OR_RETURN(const auto bound, args.Bind(macro.name, names));
  if (caller != nullptr && !macro.uses_caller) {
    return Failure(absl::StrCat("macro '", macro.name, "' has no use for a caller"));
  }
  auto scope = std::make_shared<Scope>(around);
  if (macro.uses_caller) {
    scope->Set("caller", caller != nullptr ? *caller : Value::Undefined("'caller'"));
  }
  for (size_t i = 0; i < bound.size(); ++i) {
    const Param& param = macro.params[i];
    Value value = Value::Undefined(absl::StrCat("parameter '", param.name, "'"));
    if (bound[i] != nullptr) {
      value = *bound[i];
    } else if (param.fallback != nullptr) {
      ASSIGN_OR_RETURN(value, Eval(*param.fallback, scope));
    }
    scope->Set(param.name, std::move(value));
  }
  Text out;
  RETURN_IF_ERROR(Run(macro.body, scope, &out).status());
  return context_.String(std::move(out));
}

absl::StatusOr<Value> Interpreter::CallFunction(absl::string_view name, const Args& args) {
  if (name == "range") return Range(args);
  if (name == "namespace") return MakeNamespace(args);
  if (name == "raise_exception") {
    ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"message"}, 1));
    ASSIGN_OR_RETURN(const Text message, Str(context_, *bound[0]));
    return Raised(message.view());
  }
  // dict(a=1), dict({...})
  Entries entries;
  if (args.positional.size() > 1) return Failure("dict() takes one mapping");
  if (!args.positional.empty()) {
    if (!args.positional[0].Is(Kind::kDict))
      return Failure("dict() of something that is no mapping");
    entries = args.positional[0].entries();
  }
  for (const auto& [key, value] : args.keywords) {
    auto place = entries.begin();
    while (place != entries.end() &&
           !(place->first.Is(Kind::kString) && place->first.text().view() == key)) {
      ++place;
    }
    if (place != entries.end()) {
      place->second = value;
    } else {
      entries.emplace_back(Value::String(key), value);
    }
  }
  return context_.Dict(std::move(entries));
}

absl::StatusOr<Value> Interpreter::Range(const Args& args) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t count = args.positional.size();
  if (count < 1 || count > 3 || !args.keywords.empty()) {
    return Failure("range() takes one to three integers");
  }
  for (size_t i = 0; i < count; ++i) {
    if (!args.positional[i].IsIntegral()) return Failure("range() takes integers");
    bounds[count == 1 ? 1 : i] = args.positional[i].integer();
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return Failure("the step of a range is zero");
  Items items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= budget_.limits().max_range) {
      return Failure(absl::StrCat("range() of more than ", budget_.limits().max_range, " numbers"));
    }
    items.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  RETURN_IF_ERROR(budget_.Bytes(items.size() * sizeof(Value)));
  return Value::Sequence(Flavor::kRange, std::move(items),
                         step == 1 ? absl::StrCat("range(", start, ", ", stop, ")")
                                   : absl::StrCat("range(", start, ", ", stop, ", ", step, ")"));
}

absl::StatusOr<Value> Interpreter::MakeNamespace(const Args& args) {
  auto space = std::make_shared<NamespaceObject>();
  if (args.positional.size() > 1) return Failure("namespace() takes one mapping");
  if (!args.positional.empty()) {
    if (!args.positional[0].Is(Kind::kDict)) return Failure("namespace() of no mapping");
    for (const auto& [key, value] : args.positional[0].entries()) {
      if (!key.Is(Kind::kString)) return Failure("a namespace's fields have names");
      space->fields.emplace_back(key.text().bytes(), value);
    }
  }
  for (const auto& [name, value] : args.keywords) space->fields.emplace_back(name, value);
  RETURN_IF_ERROR(budget_.Bytes(sizeof(NamespaceObject)));
  namespaces_.push_back(space);
  return Value::FromObject(Kind::kNamespace, std::move(space));
}

}  // namespace tessera::decode::jinja
