#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/decode/template/args.h"
#include "services/decode/template/ast.h"
#include "services/decode/template/scope.h"

namespace tessera::decode::jinja {

using Globals = std::vector<std::pair<std::string, Value>>;

// Renders a parsed template once. One thread; the template must outlive it.
class Interpreter {
 public:
  explicit Interpreter(const Limits& limits);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // TEMPLATE_RAISED or TEMPLATE_FAILED with the line.
  absl::StatusOr<Text> Render(const Block& block, const Globals& globals);

 private:
  using ScopePtr = std::shared_ptr<Scope>;
  enum class Flow { kNext, kBreak, kContinue };

  // Statements (interpreter.cc, loop.cc): text goes to `out`, names to `scope`.
  absl::StatusOr<Flow> Run(const Block& block, const ScopePtr& scope, Text* out);
  absl::StatusOr<Flow> Execute(const Stmt& statement, const ScopePtr& scope, Text* out);
  absl::StatusOr<Flow> If(const Stmt& statement, const ScopePtr& scope, Text* out);
  absl::StatusOr<Flow> For(const Stmt& statement, const ScopePtr& scope, Text* out);
  absl::Status Print(const Stmt& statement, const ScopePtr& scope, Text* out);
  absl::Status Set(const Stmt& statement, const ScopePtr& scope);
  absl::Status SetBlock(const Stmt& statement, const ScopePtr& scope);
  absl::StatusOr<Flow> With(const Stmt& statement, const ScopePtr& scope, Text* out);
  absl::Status CallBlock(const Stmt& statement, const ScopePtr& scope, Text* out);
  absl::Status FilterBlock(const Stmt& statement, const ScopePtr& scope, Text* out);
  absl::Status Assign(const Target& target, Value value, const ScopePtr& scope);
  Value DefineMacro(const Macro& macro, const ScopePtr& scope);
  // True when loop->accepted has an item at `place`, after asking for it.
  absl::StatusOr<bool> LoopHas(LoopObject* loop, size_t place);
  absl::StatusOr<Value> LoopAttribute(LoopObject* loop, absl::string_view name);
  absl::StatusOr<Value> CallLoop(LoopObject* loop, absl::string_view name, const Args& args);

  // Expressions (eval.cc).
  absl::StatusOr<Value> Eval(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Dispatch(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Lookup(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Collect(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> MakeDict(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Attribute(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Item(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> SliceOf(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Unary(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Binary(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Compare(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Logic(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Concat(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Conditional(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Filter(const Expr& expr, const ScopePtr& scope);
  // A filter chain over `subject` instead of its innermost operand.
  absl::StatusOr<Value> FilterChain(const Expr& expr, const Value& subject, const ScopePtr& scope);
  absl::StatusOr<Value> Test(const Expr& expr, const ScopePtr& scope);

  // Calls (call.cc).
  absl::StatusOr<Args> Arguments(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> CallExpr(const Expr& expr, const ScopePtr& scope, const Value* caller);
  absl::StatusOr<Value> Call(const Value& callee, const Args& args, const Value* caller);
  absl::StatusOr<Value> CallMacro(const MacroObject& object, const Args& args, const Value* caller);
  absl::StatusOr<Value> CallFunction(absl::string_view name, const Args& args);
  absl::StatusOr<Value> Range(const Args& args);
  absl::StatusOr<Value> MakeNamespace(const Args& args);

  Budget budget_;
  const Context context_;
  int loop_nesting_ = 0;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
};

}  // namespace tessera::decode::jinja
