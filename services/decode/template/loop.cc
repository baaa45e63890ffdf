#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/interpreter.h"

namespace tessera::decode::jinja {

absl::StatusOr<bool> Interpreter::LoopHas(LoopObject* loop, size_t place) {
  while (loop->accepted.size() <= place && loop->next < loop->source.size()) {
    const Value item = loop->source[loop->next++];
    if (loop->statement->condition != nullptr) {
      const ScopePtr around = loop->scope.lock();
      if (around == nullptr) return Failure("'loop' is used after its loop");
      auto inner = std::make_shared<Scope>(around);
      // The loop's own state is not there yet while its items are chosen.
      inner->Set("loop", Value::Undefined("'loop' in the loop's own filter"));
      RETURN_IF_ERROR(Assign(loop->statement->targets[0], item, inner));
      ASSIGN_OR_RETURN(const Value chosen, Eval(*loop->statement->condition, inner));
      if (!chosen.Truth()) continue;
    }
    loop->accepted.push_back(item);
  }
  return loop->accepted.size() > place;
}

absl::StatusOr<Interpreter::Flow> Interpreter::For(const Stmt& statement, const ScopePtr& scope,
                                                   Text* out) {
  auto loop = std::make_shared<LoopObject>();
  ASSIGN_OR_RETURN(const Value iterable, Eval(*statement.expr, scope));
  ASSIGN_OR_RETURN(loop->source, context_.Iterate(iterable));
  for (const Value& item : loop->source) loop->depth = std::max(loop->depth, item.depth() + 1);
  loop->statement = &statement;
  loop->scope = scope;
  loop->nesting = ++loop_nesting_;
  const Value loop_value = Value::FromObject(Kind::kLoop, loop);
  absl::Status status;
  for (; status.ok(); ++loop->index) {
    absl::StatusOr<bool> more = LoopHas(loop.get(), loop->index);
    if (!more.ok()) {
      status = more.status();
      break;
    }
    if (!*more) break;
    auto inner = std::make_shared<Scope>(scope);
    inner->Set("loop", loop_value);
    status = Assign(statement.targets[0], loop->accepted[loop->index], inner);
    if (!status.ok()) break;
    absl::StatusOr<Flow> flow = Run(statement.body, inner, out);
    status = flow.status();
    if (flow.ok() && *flow == Flow::kBreak) break;
  }
  --loop_nesting_;
  RETURN_IF_ERROR(status);
  if (!loop->accepted.empty()) return Flow::kNext;
  return Run(statement.otherwise, std::make_shared<Scope>(scope), out);
}

absl::StatusOr<Value> Interpreter::LoopAttribute(LoopObject* loop, absl::string_view name) {
  const int64_t index = static_cast<int64_t>(loop->index);
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "depth") return Value::Int(loop->nesting);
  if (name == "depth0") return Value::Int(loop->nesting - 1);
  if (name == "last") {
    ASSIGN_OR_RETURN(const bool more, LoopHas(loop, loop->index + 1));
    return Value::Bool(!more);
  }
  if (name == "nextitem") {
    ASSIGN_OR_RETURN(const bool more, LoopHas(loop, loop->index + 1));
    return more ? loop->accepted[loop->index + 1] : Value::Undefined("the next item");
  }
  if (name == "previtem") {
    return index > 0 ? loop->accepted[loop->index - 1] : Value::Undefined("the previous item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    RETURN_IF_ERROR(LoopHas(loop, loop->source.size()).status());
    const int64_t length = static_cast<int64_t>(loop->accepted.size());
    return Value::Int(name == "length" ? length : length - index - (name == "revindex" ? 0 : 1));
  }
  return Value::Undefined(absl::StrCat("'", name, "' of loop"));
}

absl::StatusOr<Value> Interpreter::CallLoop(LoopObject* loop, absl::string_view name,
                                            const Args& args) {
  if (!args.keywords.empty()) return Failure(absl::StrCat("loop.", name, " takes no named values"));
  if (name == "cycle") {
    if (args.positional.empty()) return Failure("loop.cycle needs a value");
    return args.positional[loop->index % args.positional.size()];
  }
  const Items& now = args.positional;
  const bool changed =
      !loop->was_changed || !std::equal(now.begin(), now.end(), loop->last_changed.begin(),
                                        loop->last_changed.end(), Equals);
  loop->was_changed = true;
  // Kept only as deep as any value may nest; a loop that holds itself would never go away.
  for (const Value& value : now) {
    RETURN_IF_ERROR(budget_.Steps(value.weight()));
    if (value.Is(Kind::kLoop)) return Failure("loop.changed of a loop is not supported");
  }
  loop->last_changed = now;
  return Value::Bool(changed);
}

}  // namespace tessera::decode::jinja
