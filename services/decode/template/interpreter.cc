#include "services/decode/template/interpreter.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/print.h"

namespace tessera::decode::jinja {

Interpreter::Interpreter(const Limits& limits) : budget_(limits), context_{budget_} {}

Interpreter::~Interpreter() {
  // A namespace may hold itself.
  for (const auto& space : namespaces_) space->fields.clear();
}

absl::StatusOr<Text> Interpreter::Render(const Block& block, const Globals& globals) {
  auto outer = std::make_shared<Scope>(nullptr);
  for (const auto& [name, value] : globals) outer->Set(name, value);
  Text out;
  RETURN_IF_ERROR(Run(block, std::make_shared<Scope>(outer), &out).status());
  return out;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Block& block, const ScopePtr& scope,
                                                   Text* out) {
  absl::Status status = budget_.Enter();
  Flow flow = Flow::kNext;
  for (size_t i = 0; status.ok() && flow == Flow::kNext && i < block.size(); ++i) {
    status = budget_.Steps();
    if (!status.ok()) break;
    absl::StatusOr<Flow> next = Execute(*block[i], scope, out);
    if (next.ok()) {
      flow = *next;
    } else {
      status = AtLine(next.status(), block[i]->line);
    }
  }
  budget_.Leave();
  if (!status.ok()) return status;
  return flow;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Stmt& statement, const ScopePtr& scope,
                                                       Text* out) {
  switch (statement.kind) {
    case StmtKind::kText:
      RETURN_IF_ERROR(context_.Append(out, statement.text));
      break;
    case StmtKind::kOutput:
      RETURN_IF_ERROR(Print(statement, scope, out));
      break;
    case StmtKind::kIf:
      return If(statement, scope, out);
    case StmtKind::kFor:
      return For(statement, scope, out);
    case StmtKind::kSet:
      RETURN_IF_ERROR(Set(statement, scope));
      break;
    case StmtKind::kSetBlock:
      RETURN_IF_ERROR(SetBlock(statement, scope));
      break;
    case StmtKind::kWith:
      return With(statement, scope, out);
    case StmtKind::kMacro:
      scope->Set(statement.macro->name, DefineMacro(*statement.macro, scope));
      break;
    case StmtKind::kCallBlock:
      RETURN_IF_ERROR(CallBlock(statement, scope, out));
      break;
    case StmtKind::kFilterBlock:
      RETURN_IF_ERROR(FilterBlock(statement, scope, out));
      break;
    case StmtKind::kGroup:
      return Run(statement.body, std::make_shared<Scope>(scope), out);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

absl::Status Interpreter::Print(const Stmt& statement, const ScopePtr& scope, Text* out) {
  ASSIGN_OR_RETURN(const Value value, Eval(*statement.expr, scope));
  return AppendStr(context_, value, out);
}

absl::StatusOr<Interpreter::Flow> Interpreter::If(const Stmt& statement, const ScopePtr& scope,
                                                  Text* out) {
  for (const Branch& branch : statement.branches) {
    ASSIGN_OR_RETURN(const Value condition, Eval(*branch.condition, scope));
    if (condition.Truth()) return Run(branch.body, scope, out);
  }
  return Run(statement.body, scope, out);
}

absl::Status Interpreter::Set(const Stmt& statement, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(Value value, Eval(*statement.expr, scope));
  return Assign(statement.targets[0], std::move(value), scope);
}

absl::Status Interpreter::Assign(const Target& target, Value value, const ScopePtr& scope) {
  if (!target.parts.empty()) {
    ASSIGN_OR_RETURN(const Items items, context_.Iterate(value));
    if (items.size() != target.parts.size()) {
      return Failure(absl::StrCat("cannot unpack ", items.size(), " values into ",
                                  target.parts.size(), " names"));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      RETURN_IF_ERROR(Assign(target.parts[i], items[i], scope));
    }
    return absl::OkStatus();
  }
  if (target.field.empty()) {
    scope->Set(target.name, std::move(value));
    return absl::OkStatus();
  }
  const Value* space = scope->Find(target.name);
  if (space == nullptr || !space->Is(Kind::kNamespace)) {
    return Failure(absl::StrCat("cannot set a field of '", target.name, "': it is no namespace"));
  }
  auto& fields = static_cast<NamespaceObject*>(space->object())->fields;
  for (auto& [name, old] : fields) {
    if (name == target.field) {
      old = std::move(value);
      return absl::OkStatus();
    }
  }
  fields.emplace_back(target.field, std::move(value));
  return absl::OkStatus();
}

absl::Status Interpreter::SetBlock(const Stmt& statement, const ScopePtr& scope) {
  Text text;
  RETURN_IF_ERROR(Run(statement.body, std::make_shared<Scope>(scope), &text).status());
  ASSIGN_OR_RETURN(Value value, context_.String(std::move(text)));
  if (statement.expr != nullptr) {
    ASSIGN_OR_RETURN(value, FilterChain(*statement.expr, value, scope));
  }
  return Assign(statement.targets[0], std::move(value), scope);
}

absl::StatusOr<Interpreter::Flow> Interpreter::With(const Stmt& statement, const ScopePtr& scope,
                                                    Text* out) {
  auto inner = std::make_shared<Scope>(scope);
  Items values;
  for (const ExprPtr& expr : statement.values) {
    ASSIGN_OR_RETURN(Value value, Eval(*expr, scope));
    values.push_back(std::move(value));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(Assign(statement.targets[i], std::move(values[i]), inner));
  }
  return Run(statement.body, inner, out);
}

absl::Status Interpreter::FilterBlock(const Stmt& statement, const ScopePtr& scope, Text* out) {
  Text text;
  RETURN_IF_ERROR(Run(statement.body, std::make_shared<Scope>(scope), &text).status());
  ASSIGN_OR_RETURN(const Value body, context_.String(std::move(text)));
  ASSIGN_OR_RETURN(const Value value, FilterChain(*statement.expr, body, scope));
  return AppendStr(context_, value, out);
}

absl::Status Interpreter::CallBlock(const Stmt& statement, const ScopePtr& scope, Text* out) {
  const Value caller = DefineMacro(*statement.macro, scope);
  ASSIGN_OR_RETURN(const Value value, CallExpr(*statement.expr, scope, &caller));
  return AppendStr(context_, value, out);
}

Value Interpreter::DefineMacro(const Macro& macro, const ScopePtr& scope) {
  auto object = std::make_shared<MacroObject>();
  object->macro = &macro;
  object->scope = scope;
  return Value::FromObject(Kind::kMacro, std::move(object));
}

}  // namespace tessera::decode::jinja
