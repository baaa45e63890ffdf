#include "services/decode/template/parser.h"

#include <utility>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "services/decode/template/parser_expr.h"
#include "services/decode/template/token_stream.h"

namespace tessera::decode::jinja {
namespace {

using StmtPtr = std::unique_ptr<Stmt>;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits)
      : tokens_(std::move(tokens)), limits_(limits), exprs_(&tokens_, limits) {}

  absl::StatusOr<Block> Run() {
    ASSIGN_OR_RETURN(Block block, Body({}));
    if (!tokens_.Is(TokenKind::kEnd)) return tokens_.Unexpected("the end of the template");
    return block;
  }

 private:
  // Statements up to a tag named in `ends` (that name is the next token then), or to the end of
  // the template when `ends` is empty.
  absl::StatusOr<Block> Body(absl::Span<const absl::string_view> ends) {
    if (++depth_ > limits_.max_parse_depth) {
      return FailureAt(tokens_.line(), "blocks nest too deep");
    }
    Block block;
    while (!tokens_.Is(TokenKind::kEnd)) {
      StmtPtr statement;
      if (tokens_.Is(TokenKind::kData)) {
        statement = Make(StmtKind::kText);
        statement->text = tokens_.Take().text;
      } else if (tokens_.Is(TokenKind::kVariableBegin)) {
        ASSIGN_OR_RETURN(statement, Output());
      } else {
        tokens_.Take();  // {%
        for (const absl::string_view end : ends) {
          if (!tokens_.IsName(end)) continue;
          --depth_;
          return block;
        }
        ASSIGN_OR_RETURN(statement, Statement());
      }
      block.push_back(std::move(statement));
    }
    --depth_;
    if (!ends.empty()) return tokens_.Unexpected(absl::StrCat("'", ends.back(), "'"));
    return block;
  }

  // The same, with the end tag and its closing braces taken.
  absl::StatusOr<Block> BodyTo(absl::string_view end) {
    ASSIGN_OR_RETURN(Block block, Body({end}));
    tokens_.Take();
    RETURN_IF_ERROR(EndTag());
    return block;
  }

  StmtPtr Make(StmtKind kind) const {
    auto statement = std::make_unique<Stmt>();
    statement->kind = kind;
    statement->line = tokens_.line();
    return statement;
  }

  absl::Status EndTag() { return tokens_.Expect(TokenKind::kBlockEnd, "'%}'"); }

  absl::StatusOr<StmtPtr> Output() {
    StmtPtr statement = Make(StmtKind::kOutput);
    tokens_.Take();
    ASSIGN_OR_RETURN(statement->expr, exprs_.Tuple(true));
    RETURN_IF_ERROR(tokens_.Expect(TokenKind::kVariableEnd, "'}}'"));
    return statement;
  }

  absl::StatusOr<StmtPtr> Statement() {
    if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a tag's name");
    const Token tag = tokens_.Take();
    if (tag.text == "if") return If();
    if (tag.text == "for") return For();
    if (tag.text == "set") return Set();
    if (tag.text == "with") return With();
    if (tag.text == "macro") return MacroBlock();
    if (tag.text == "call") return CallBlock();
    if (tag.text == "filter") return FilterBlock();
    if (tag.text == "generation") return Generation();
    if (tag.text == "break" || tag.text == "continue") return Jump(tag);
    return FailureAt(tag.line, absl::StrCat("unknown tag '", tag.text, "'"));
  }

  absl::StatusOr<StmtPtr> If() {
    StmtPtr statement = Make(StmtKind::kIf);
    for (;;) {
      Branch branch;
      ASSIGN_OR_RETURN(branch.condition, exprs_.Tuple(false));
      RETURN_IF_ERROR(EndTag());
      ASSIGN_OR_RETURN(branch.body, Body({"elif", "else", "endif"}));
      statement->branches.push_back(std::move(branch));
      const Token end = tokens_.Take();
      if (end.text == "elif") continue;
      RETURN_IF_ERROR(EndTag());
      if (end.text == "else") {
        ASSIGN_OR_RETURN(statement->body, BodyTo("endif"));
      }
      return statement;
    }
  }

  absl::StatusOr<StmtPtr> For() {
    StmtPtr statement = Make(StmtKind::kFor);
    ASSIGN_OR_RETURN(Target target, AssignTarget(false));
    statement->targets.push_back(std::move(target));
    RETURN_IF_ERROR(tokens_.ExpectName("in"));
    ASSIGN_OR_RETURN(statement->expr, exprs_.Tuple(false));
    if (tokens_.SkipName("if")) {
      ASSIGN_OR_RETURN(statement->condition, exprs_.Expression());
    }
    if (tokens_.IsName("recursive")) {
      return FailureAt(tokens_.line(), "'for ... recursive' is not supported");
    }
    RETURN_IF_ERROR(EndTag());
    ++loops_;
    ASSIGN_OR_RETURN(statement->body, Body({"else", "endfor"}));
    --loops_;
    const Token end = tokens_.Take();
    RETURN_IF_ERROR(EndTag());
    if (end.text == "else") {
      ASSIGN_OR_RETURN(statement->otherwise, BodyTo("endfor"));
    }
    return statement;
  }

  absl::StatusOr<Target> OneTarget(bool fields, int depth) {
    if (depth > 8) return FailureAt(tokens_.line(), "targets nest too deep");
    Target target;
    if (tokens_.SkipOperator("(")) {
      ASSIGN_OR_RETURN(target, AssignTarget(fields, depth + 1));
      RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
      return target;
    }
    static constexpr absl::string_view kReserved[] = {"true",  "false", "none", "True",
                                                      "False", "None",  "loop"};
    for (const absl::string_view name : kReserved) {
      if (tokens_.IsName(name)) {
        return FailureAt(tokens_.line(), absl::StrCat("cannot assign to '", name, "'"));
      }
    }
    if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a name to assign to");
    target.name = tokens_.Take().text;
    if (!tokens_.IsOperator(".")) return target;
    if (!fields) return tokens_.Unexpected("'in' or '='");
    tokens_.Take();
    if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a field's name");
    target.field = tokens_.Take().text;
    return target;
  }

  absl::StatusOr<Target> AssignTarget(bool fields, int depth = 0) {
    ASSIGN_OR_RETURN(Target first, OneTarget(fields, depth));
    if (!tokens_.IsOperator(",")) return first;
    Target tuple;
    tuple.parts.push_back(std::move(first));
    while (tokens_.SkipOperator(",")) {
      if (tokens_.IsName("in") || tokens_.IsOperator("=") || tokens_.IsOperator(")")) break;
      ASSIGN_OR_RETURN(Target next, OneTarget(fields, depth));
      tuple.parts.push_back(std::move(next));
    }
    return tuple;
  }

  absl::StatusOr<StmtPtr> Set() {
    StmtPtr statement = Make(StmtKind::kSet);
    ASSIGN_OR_RETURN(Target target, AssignTarget(true));
    statement->targets.push_back(std::move(target));
    if (tokens_.SkipOperator("=")) {
      ASSIGN_OR_RETURN(statement->expr, exprs_.Tuple(true));
      RETURN_IF_ERROR(EndTag());
      return statement;
    }
    statement->kind = StmtKind::kSetBlock;
    ASSIGN_OR_RETURN(statement->expr, exprs_.Filters(nullptr, false));
    RETURN_IF_ERROR(EndTag());
    ASSIGN_OR_RETURN(statement->body, BodyTo("endset"));
    return statement;
  }

  absl::StatusOr<StmtPtr> With() {
    StmtPtr statement = Make(StmtKind::kWith);
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!statement->targets.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      ASSIGN_OR_RETURN(Target target, OneTarget(false, 0));
      statement->targets.push_back(std::move(target));
      RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      ASSIGN_OR_RETURN(ExprPtr value, exprs_.Expression());
      statement->values.push_back(std::move(value));
    }
    RETURN_IF_ERROR(EndTag());
    ASSIGN_OR_RETURN(statement->body, BodyTo("endwith"));
    return statement;
  }

  absl::Status Signature(Macro* macro) {
    RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.IsOperator(")")) {
      if (!macro->params.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a parameter's name");
      Param param;
      param.name = tokens_.Take().text;
      for (const Param& other : macro->params) {
        if (other.name == param.name) {
          return FailureAt(tokens_.line(), absl::StrCat("two parameters '", param.name, "'"));
        }
      }
      if (tokens_.SkipOperator("=")) {
        ASSIGN_OR_RETURN(param.fallback, exprs_.Expression());
      } else if (!macro->params.empty() && macro->params.back().fallback != nullptr) {
        return FailureAt(tokens_.line(), "a parameter without default follows one with");
      }
      macro->params.push_back(std::move(param));
    }
    return tokens_.ExpectOperator(")");
  }

  // The body of a macro or call block: loops outside do not count, `caller` in it does.
  absl::Status MacroBody(Macro* macro, absl::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const bool saw = exprs_.saw_caller();
    exprs_.set_saw_caller(false);
    ASSIGN_OR_RETURN(macro->body, BodyTo(end));
    macro->uses_caller = exprs_.saw_caller();
    exprs_.set_saw_caller(saw);
    loops_ = loops;
    return absl::OkStatus();
  }

  absl::StatusOr<StmtPtr> MacroBlock() {
    StmtPtr statement = Make(StmtKind::kMacro);
    statement->macro = std::make_unique<Macro>();
    if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("the macro's name");
    statement->macro->name = tokens_.Take().text;
    RETURN_IF_ERROR(Signature(statement->macro.get()));
    RETURN_IF_ERROR(EndTag());
    RETURN_IF_ERROR(MacroBody(statement->macro.get(), "endmacro"));
    return statement;
  }

  absl::StatusOr<StmtPtr> CallBlock() {
    StmtPtr statement = Make(StmtKind::kCallBlock);
    statement->macro = std::make_unique<Macro>();
    statement->macro->name = "caller";
    if (tokens_.IsOperator("(")) RETURN_IF_ERROR(Signature(statement->macro.get()));
    ASSIGN_OR_RETURN(statement->expr, exprs_.Expression());
    if (statement->expr->kind != ExprKind::kCall) return tokens_.Unexpected("a call");
    RETURN_IF_ERROR(EndTag());
    RETURN_IF_ERROR(MacroBody(statement->macro.get(), "endcall"));
    return statement;
  }

  absl::StatusOr<StmtPtr> FilterBlock() {
    StmtPtr statement = Make(StmtKind::kFilterBlock);
    ASSIGN_OR_RETURN(statement->expr, exprs_.Filters(nullptr, true));
    RETURN_IF_ERROR(EndTag());
    ASSIGN_OR_RETURN(statement->body, BodyTo("endfilter"));
    return statement;
  }

  absl::StatusOr<StmtPtr> Generation() {
    StmtPtr statement = Make(StmtKind::kGroup);
    RETURN_IF_ERROR(EndTag());
    const int loops = std::exchange(loops_, 0);  // as in a call block, a loop outside ends here
    ASSIGN_OR_RETURN(statement->body, BodyTo("endgeneration"));
    loops_ = loops;
    return statement;
  }

  absl::StatusOr<StmtPtr> Jump(const Token& tag) {
    if (loops_ == 0) return FailureAt(tag.line, absl::StrCat("'", tag.text, "' outside a loop"));
    StmtPtr statement = Make(tag.text == "break" ? StmtKind::kBreak : StmtKind::kContinue);
    RETURN_IF_ERROR(EndTag());
    return statement;
  }

  TokenStream tokens_;
  const Limits& limits_;
  ExprParser exprs_;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

absl::StatusOr<Block> Parse(absl::string_view source, const Limits& limits) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source, limits));
  return Parser(std::move(tokens), limits).Run();
}

}  // namespace tessera::decode::jinja
