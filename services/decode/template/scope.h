#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "services/decode/template/ast.h"
#include "services/decode/template/value.h"

namespace tessera::decode::jinja {

// Names of one block, over those of the blocks around it.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}

  const Value* Find(absl::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
      for (const auto& [key, value] : scope->names) {
        if (key == name) return &value;
      }
    }
    return nullptr;
  }

  void Set(absl::string_view name, Value value) {
    for (auto& [key, old] : names) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    names.emplace_back(std::string(name), std::move(value));
  }

  const std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> names;
};

// A macro sees the names around its definition, as they are when it is called. It does not keep
// that scope alive (a scope holds its macros), so it cannot be called after it.
struct MacroObject : Object {
  const Macro* macro = nullptr;  // of the template
  std::weak_ptr<Scope> scope;
};

// The variable `loop`. Items that a `for ... if` filters are found one at a time, as the loop or a
// question for its length needs them.
struct LoopObject : Object {
  const Stmt* statement = nullptr;
  std::weak_ptr<Scope> scope;  // around the loop
  Items source;
  size_t next = 0;  // in source
  Items accepted;
  size_t index = 0;  // in accepted
  int nesting = 0;
  std::vector<Value> last_changed;
  bool was_changed = false;
};

}  // namespace tessera::decode::jinja
