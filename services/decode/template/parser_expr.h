#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/decode/template/ast.h"
#include "services/decode/template/token_stream.h"

namespace tessera::decode::jinja {

// Parses expressions with Jinja's precedence: if-else, or, and, not, comparisons, + -, ~, * / // %,
// **, unary minus, postfix, filters and tests. Nesting is bounded, in brackets and in the tree.
class ExprParser {
 public:
  ExprParser(TokenStream* tokens, const Limits& limits) : tokens_(*tokens), limits_(limits) {}

  absl::StatusOr<ExprPtr> Expression() { return Conditional(true); }
  // An expression, or several with commas as a tuple. `conditional`: `a if b` is allowed.
  absl::StatusOr<ExprPtr> Tuple(bool conditional);
  // The filters after `node`; with `bare` the first one has no `|` (a filter block).
  absl::StatusOr<ExprPtr> Filters(ExprPtr node, bool bare);

  bool saw_caller() const { return saw_caller_; }
  void set_saw_caller(bool saw) { saw_caller_ = saw; }

 private:
  class Nest;

  absl::StatusOr<ExprPtr> Conditional(bool allowed);
  absl::StatusOr<ExprPtr> Or();
  absl::StatusOr<ExprPtr> And();
  absl::StatusOr<ExprPtr> Not();
  absl::StatusOr<ExprPtr> Compare();
  absl::StatusOr<ExprPtr> Arithmetic(int level);
  absl::StatusOr<ExprPtr> Concat();
  absl::StatusOr<ExprPtr> Unary(bool with_filter);
  absl::StatusOr<ExprPtr> Primary();
  absl::StatusOr<ExprPtr> NameOrConstant();
  absl::StatusOr<ExprPtr> Number();
  absl::StatusOr<ExprPtr> Parenthesis();
  absl::StatusOr<ExprPtr> ListOrDict();
  absl::StatusOr<ExprPtr> Postfix(ExprPtr node);
  absl::StatusOr<ExprPtr> CallOf(ExprPtr callee);  // at its parenthesis
  absl::StatusOr<ExprPtr> Attribute(ExprPtr node);
  absl::StatusOr<ExprPtr> Subscript(ExprPtr node);
  absl::StatusOr<ExprPtr> FiltersAndTests(ExprPtr node);
  absl::StatusOr<ExprPtr> Test(ExprPtr node);
  absl::Status CallArguments(Expr* call);
  absl::StatusOr<std::string> DottedName();
  bool AtTupleEnd() const;

  ExprPtr Make(ExprKind kind, int line) const;
  // Adds a child and keeps the depth of the tree; failure beyond the limit.
  absl::Status Add(Expr* parent, ExprPtr child) const;
  absl::Status Deepen(Expr* parent, const Expr& child) const;

  TokenStream& tokens_;
  const Limits& limits_;
  int depth_ = 0;
  bool saw_caller_ = false;
};

}  // namespace tessera::decode::jinja
