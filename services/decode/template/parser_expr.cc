#include "services/decode/template/parser_expr.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/base/status_macros.h"
#include "services/decode/template/filters.h"
#include "services/decode/template/tests.h"

namespace tessera::decode::jinja {
namespace {

struct Spelling {
  absl::string_view text;
  Op op;
};

constexpr Spelling kComparisonOperators[] = {{"==", Op::kEq}, {"!=", Op::kNe}, {"<=", Op::kLe},
                                             {">=", Op::kGe}, {"<", Op::kLt},  {">", Op::kGt}};
constexpr Spelling kSums[] = {{"+", Op::kAdd}, {"-", Op::kSub}};
constexpr Spelling kProducts[] = {
    {"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}};
constexpr Spelling kPowers[] = {{"**", Op::kPow}};

template <size_t N>
const Spelling* OperatorAt(const TokenStream& tokens, const Spelling (&table)[N]) {
  for (const Spelling& entry : table) {
    if (tokens.IsOperator(entry.text)) return &entry;
  }
  return nullptr;
}

}  // namespace

// One level of nesting, for the time of a scope.
class ExprParser::Nest {
 public:
  explicit Nest(ExprParser* parser) : parser_(parser) { ++parser_->depth_; }
  ~Nest() { --parser_->depth_; }
  absl::Status Check() const {
    if (parser_->depth_ <= parser_->limits_.max_parse_depth) return absl::OkStatus();
    return FailureAt(parser_->tokens_.line(), "brackets or operators nest too deep");
  }

 private:
  ExprParser* const parser_;
};

ExprPtr ExprParser::Make(ExprKind kind, int line) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  return node;
}

absl::Status ExprParser::Deepen(Expr* parent, const Expr& child) const {
  parent->depth = std::max(parent->depth, child.depth + 1);
  if (parent->depth <= limits_.max_parse_depth) return absl::OkStatus();
  return FailureAt(parent->line, "an expression is too long or nests too deep");
}

absl::Status ExprParser::Add(Expr* parent, ExprPtr child) const {
  if (child != nullptr) RETURN_IF_ERROR(Deepen(parent, *child));
  parent->args.push_back(std::move(child));
  return absl::OkStatus();
}

bool ExprParser::AtTupleEnd() const {
  return tokens_.Is(TokenKind::kVariableEnd) || tokens_.Is(TokenKind::kBlockEnd) ||
         tokens_.IsOperator(")") || tokens_.IsName("recursive");
}

absl::StatusOr<ExprPtr> ExprParser::Tuple(bool conditional) {
  const int line = tokens_.line();
  ASSIGN_OR_RETURN(ExprPtr first, Conditional(conditional));
  if (!tokens_.IsOperator(",")) return first;
  ExprPtr tuple = Make(ExprKind::kTuple, line);
  RETURN_IF_ERROR(Add(tuple.get(), std::move(first)));
  while (tokens_.SkipOperator(",")) {
    if (AtTupleEnd()) break;
    ASSIGN_OR_RETURN(ExprPtr item, Conditional(conditional));
    RETURN_IF_ERROR(Add(tuple.get(), std::move(item)));
  }
  return tuple;
}

absl::StatusOr<ExprPtr> ExprParser::Conditional(bool allowed) {
  const Nest nest(this);
  RETURN_IF_ERROR(nest.Check());
  ASSIGN_OR_RETURN(ExprPtr node, Or());
  while (allowed && tokens_.IsName("if")) {
    ExprPtr choice = Make(ExprKind::kCond, tokens_.Take().line);
    RETURN_IF_ERROR(Add(choice.get(), std::move(node)));
    ASSIGN_OR_RETURN(ExprPtr condition, Or());
    RETURN_IF_ERROR(Add(choice.get(), std::move(condition)));
    ExprPtr otherwise;
    if (tokens_.SkipName("else")) {
      ASSIGN_OR_RETURN(otherwise, Conditional(true));
    }
    RETURN_IF_ERROR(Add(choice.get(), std::move(otherwise)));
    node = std::move(choice);
  }
  return node;
}

absl::StatusOr<ExprPtr> ExprParser::Or() {
  ASSIGN_OR_RETURN(ExprPtr first, And());
  if (!tokens_.IsName("or")) return first;
  ExprPtr node = Make(ExprKind::kOr, tokens_.line());
  RETURN_IF_ERROR(Add(node.get(), std::move(first)));
  while (tokens_.SkipName("or")) {
    ASSIGN_OR_RETURN(ExprPtr next, And());
    RETURN_IF_ERROR(Add(node.get(), std::move(next)));
  }
  return node;
}

absl::StatusOr<ExprPtr> ExprParser::And() {
  ASSIGN_OR_RETURN(ExprPtr first, Not());
  if (!tokens_.IsName("and")) return first;
  ExprPtr node = Make(ExprKind::kAnd, tokens_.line());
  RETURN_IF_ERROR(Add(node.get(), std::move(first)));
  while (tokens_.SkipName("and")) {
    ASSIGN_OR_RETURN(ExprPtr next, Not());
    RETURN_IF_ERROR(Add(node.get(), std::move(next)));
  }
  return node;
}

absl::StatusOr<ExprPtr> ExprParser::Not() {
  if (!tokens_.IsName("not")) return Compare();
  const Nest nest(this);
  RETURN_IF_ERROR(nest.Check());
  ExprPtr node = Make(ExprKind::kUnary, tokens_.Take().line);
  node->ops.push_back(Op::kNot);
  ASSIGN_OR_RETURN(ExprPtr operand, Not());
  RETURN_IF_ERROR(Add(node.get(), std::move(operand)));
  return node;
}

absl::StatusOr<ExprPtr> ExprParser::Compare() {
  ASSIGN_OR_RETURN(ExprPtr first, Arithmetic(0));
  ExprPtr node;
  for (;;) {
    Op op;
    const int line = tokens_.line();
    if (const Spelling* spelling = OperatorAt(tokens_, kComparisonOperators); spelling != nullptr) {
      tokens_.Take();
      op = spelling->op;
    } else if (tokens_.SkipName("in")) {
      op = Op::kIn;
    } else if (tokens_.IsName("not") && tokens_.IsName("in", 1)) {
      tokens_.Take();
      tokens_.Take();
      op = Op::kNotIn;
    } else {
      break;
    }
    if (node == nullptr) {
      node = Make(ExprKind::kCompare, line);
      RETURN_IF_ERROR(Add(node.get(), std::move(first)));
    }
    node->ops.push_back(op);
    ASSIGN_OR_RETURN(ExprPtr next, Arithmetic(0));
    RETURN_IF_ERROR(Add(node.get(), std::move(next)));
  }
  return node == nullptr ? std::move(first) : std::move(node);
}

// Level 0: + -; 1: * / // %; 2: **. All from left to right, as Jinja has it.
absl::StatusOr<ExprPtr> ExprParser::Arithmetic(int level) {
  const auto operand = [&] {
    return level == 0 ? Concat() : level == 1 ? Arithmetic(2) : Unary(true);
  };
  ASSIGN_OR_RETURN(ExprPtr node, operand());
  for (;;) {
    const Spelling* spelling = level == 0   ? OperatorAt(tokens_, kSums)
                               : level == 1 ? OperatorAt(tokens_, kProducts)
                                            : OperatorAt(tokens_, kPowers);
    if (spelling == nullptr) return node;
    ExprPtr parent = Make(ExprKind::kBinary, tokens_.Take().line);
    parent->ops.push_back(spelling->op);
    RETURN_IF_ERROR(Add(parent.get(), std::move(node)));
    ASSIGN_OR_RETURN(ExprPtr right, operand());
    RETURN_IF_ERROR(Add(parent.get(), std::move(right)));
    node = std::move(parent);
  }
}

absl::StatusOr<ExprPtr> ExprParser::Concat() {
  ASSIGN_OR_RETURN(ExprPtr first, Arithmetic(1));
  if (!tokens_.IsOperator("~")) return first;
  ExprPtr node = Make(ExprKind::kConcat, tokens_.line());
  RETURN_IF_ERROR(Add(node.get(), std::move(first)));
  while (tokens_.SkipOperator("~")) {
    ASSIGN_OR_RETURN(ExprPtr next, Arithmetic(1));
    RETURN_IF_ERROR(Add(node.get(), std::move(next)));
  }
  return node;
}

absl::StatusOr<ExprPtr> ExprParser::Unary(bool with_filter) {
  const Nest nest(this);
  RETURN_IF_ERROR(nest.Check());
  ExprPtr node;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const Token sign = tokens_.Take();
    node = Make(ExprKind::kUnary, sign.line);
    node->ops.push_back(sign.text == "-" ? Op::kNeg : Op::kPos);
    ASSIGN_OR_RETURN(ExprPtr operand, Unary(false));
    RETURN_IF_ERROR(Add(node.get(), std::move(operand)));
  } else {
    ASSIGN_OR_RETURN(node, Primary());
  }
  ASSIGN_OR_RETURN(node, Postfix(std::move(node)));
  return with_filter ? FiltersAndTests(std::move(node)) : std::move(node);
}

absl::StatusOr<ExprPtr> ExprParser::FiltersAndTests(ExprPtr node) {
  for (;;) {
    if (tokens_.IsOperator("|")) {
      ASSIGN_OR_RETURN(node, Filters(std::move(node), false));
    } else if (tokens_.IsName("is")) {
      ASSIGN_OR_RETURN(node, Test(std::move(node)));
    } else if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(node, CallOf(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<std::string> ExprParser::DottedName() {
  if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a name");
  std::string name = tokens_.Take().text;
  while (tokens_.SkipOperator(".")) {
    if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a name");
    absl::StrAppend(&name, ".", tokens_.Take().text);
  }
  return name;
}

absl::StatusOr<ExprPtr> ExprParser::Filters(ExprPtr node, bool bare) {
  while (bare || tokens_.SkipOperator("|")) {
    bare = false;
    ExprPtr filter = Make(ExprKind::kFilter, tokens_.line());
    ASSIGN_OR_RETURN(filter->name, DottedName());
    if (!IsFilter(filter->name)) {
      return FailureAt(filter->line, absl::StrCat("unknown filter '", filter->name, "'"));
    }
    RETURN_IF_ERROR(Add(filter.get(), std::move(node)));
    if (tokens_.IsOperator("(")) RETURN_IF_ERROR(CallArguments(filter.get()));
    node = std::move(filter);
  }
  return node;
}

absl::StatusOr<ExprPtr> ExprParser::Test(ExprPtr node) {
  ExprPtr test = Make(ExprKind::kTest, tokens_.Take().line);
  const bool negated = tokens_.SkipName("not");
  ASSIGN_OR_RETURN(test->name, DottedName());
  if (!IsTest(test->name)) {
    return FailureAt(test->line, absl::StrCat("unknown test '", test->name, "'"));
  }
  RETURN_IF_ERROR(Add(test.get(), std::move(node)));
  const bool stop = tokens_.IsName("else") || tokens_.IsName("or") || tokens_.IsName("and");
  if (tokens_.IsOperator("(")) {
    RETURN_IF_ERROR(CallArguments(test.get()));
  } else if (tokens_.IsName("is")) {
    return FailureAt(tokens_.line(), "tests cannot be chained with 'is'");
  } else if (!stop && (tokens_.Is(TokenKind::kName) || tokens_.Is(TokenKind::kString) ||
                       tokens_.Is(TokenKind::kInteger) || tokens_.Is(TokenKind::kFloat) ||
                       tokens_.IsOperator("[") || tokens_.IsOperator("{"))) {
    ASSIGN_OR_RETURN(ExprPtr argument, Primary());
    ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
    RETURN_IF_ERROR(Add(test.get(), std::move(argument)));
  }
  if (!negated) return test;
  ExprPtr inverse = Make(ExprKind::kUnary, test->line);
  inverse->ops.push_back(Op::kNot);
  RETURN_IF_ERROR(Add(inverse.get(), std::move(test)));
  return inverse;
}

absl::StatusOr<ExprPtr> ExprParser::Primary() {
  if (tokens_.Is(TokenKind::kName)) return NameOrConstant();
  if (tokens_.Is(TokenKind::kString)) {
    ExprPtr node = Make(ExprKind::kConst, tokens_.line());
    std::string text;
    while (tokens_.Is(TokenKind::kString)) text += tokens_.Take().text;
    node->value = Value::String(text);
    return node;
  }
  if (tokens_.Is(TokenKind::kInteger) || tokens_.Is(TokenKind::kFloat)) return Number();
  if (tokens_.IsOperator("(")) return Parenthesis();
  if (tokens_.IsOperator("[") || tokens_.IsOperator("{")) return ListOrDict();
  return tokens_.Unexpected("an expression");
}

absl::StatusOr<ExprPtr> ExprParser::NameOrConstant() {
  const Token token = tokens_.Take();
  ExprPtr node = Make(ExprKind::kConst, token.line);
  if (token.text == "true" || token.text == "True") {
    node->value = Value::Bool(true);
  } else if (token.text == "false" || token.text == "False") {
    node->value = Value::Bool(false);
  } else if (token.text == "none" || token.text == "None") {
    node->value = Value::None();
  } else {
    node->kind = ExprKind::kName;
    node->name = token.text;
    if (token.text == "caller") saw_caller_ = true;
  }
  return node;
}

absl::StatusOr<ExprPtr> ExprParser::Number() {
  const Token token = tokens_.Take();
  ExprPtr node = Make(ExprKind::kConst, token.line);
  if (token.kind == TokenKind::kFloat) {
    node->value = Value::Float(std::strtod(token.text.c_str(), nullptr));
    return node;
  }
  int64_t number = 0;
  node->value =
      absl::SimpleAtoi(token.text, &number) ? Value::Int(number) : Value::BigInt(token.text);
  return node;
}

absl::StatusOr<ExprPtr> ExprParser::Parenthesis() {
  const int line = tokens_.Take().line;
  if (tokens_.SkipOperator(")")) return Make(ExprKind::kTuple, line);
  ASSIGN_OR_RETURN(ExprPtr node, Tuple(true));
  RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return node;
}

absl::StatusOr<ExprPtr> ExprParser::ListOrDict() {
  const Token open = tokens_.Take();
  const bool dict = open.text == "{";
  const absl::string_view close = dict ? "}" : "]";
  ExprPtr node = Make(dict ? ExprKind::kDict : ExprKind::kList, open.line);
  while (!tokens_.IsOperator(close)) {
    if (!node->args.empty()) {
      RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.IsOperator(close)) break;
    }
    ASSIGN_OR_RETURN(ExprPtr item, Expression());
    RETURN_IF_ERROR(Add(node.get(), std::move(item)));
    if (!dict) continue;
    RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExprPtr value, Expression());
    RETURN_IF_ERROR(Add(node.get(), std::move(value)));
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator(close));
  return node;
}

absl::StatusOr<ExprPtr> ExprParser::CallOf(ExprPtr callee) {
  ExprPtr call = Make(ExprKind::kCall, tokens_.line());
  RETURN_IF_ERROR(Add(call.get(), std::move(callee)));
  RETURN_IF_ERROR(CallArguments(call.get()));
  return call;
}

absl::StatusOr<ExprPtr> ExprParser::Postfix(ExprPtr node) {
  for (;;) {
    if (tokens_.IsOperator(".")) {
      ASSIGN_OR_RETURN(node, Attribute(std::move(node)));
    } else if (tokens_.IsOperator("[")) {
      ASSIGN_OR_RETURN(node, Subscript(std::move(node)));
    } else if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(node, CallOf(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExprPtr> ExprParser::Attribute(ExprPtr node) {
  const int line = tokens_.Take().line;
  if (tokens_.Is(TokenKind::kInteger)) {
    ExprPtr item = Make(ExprKind::kItem, line);
    RETURN_IF_ERROR(Add(item.get(), std::move(node)));
    ASSIGN_OR_RETURN(ExprPtr index, Number());
    RETURN_IF_ERROR(Add(item.get(), std::move(index)));
    return item;
  }
  if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a name or number after '.'");
  ExprPtr attribute = Make(ExprKind::kAttr, line);
  attribute->name = tokens_.Take().text;
  RETURN_IF_ERROR(Add(attribute.get(), std::move(node)));
  return attribute;
}

absl::StatusOr<ExprPtr> ExprParser::Subscript(ExprPtr node) {
  ExprPtr result = Make(ExprKind::kItem, tokens_.Take().line);
  RETURN_IF_ERROR(Add(result.get(), std::move(node)));
  ExprPtr parts[3];
  int count = 0;
  for (; count < 3; ++count) {
    if (!tokens_.IsOperator(":") && !tokens_.IsOperator("]")) {
      ASSIGN_OR_RETURN(parts[count], Expression());
    }
    if (count == 2 || !tokens_.SkipOperator(":")) break;
    result->kind = ExprKind::kSlice;
  }
  if (tokens_.IsOperator(",")) {
    return FailureAt(tokens_.line(), "a subscript with ',' is not supported");
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  if (result->kind == ExprKind::kItem) {
    if (parts[0] == nullptr) return FailureAt(result->line, "a subscript is empty");
    RETURN_IF_ERROR(Add(result.get(), std::move(parts[0])));
    return result;
  }
  for (ExprPtr& part : parts) RETURN_IF_ERROR(Add(result.get(), std::move(part)));
  return result;
}

absl::Status ExprParser::CallArguments(Expr* call) {
  RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  bool first = true;
  while (!tokens_.IsOperator(")")) {
    if (!first) {
      RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.IsOperator(")")) break;
    }
    first = false;
    if (tokens_.IsOperator("*") || tokens_.IsOperator("**")) {
      return FailureAt(tokens_.line(), "*args and **kwargs are not supported");
    }
    if (tokens_.Is(TokenKind::kName) && tokens_.IsOperator("=", 1)) {
      std::string name = tokens_.Take().text;
      tokens_.Take();
      ASSIGN_OR_RETURN(ExprPtr value, Expression());
      RETURN_IF_ERROR(Deepen(call, *value));
      for (const auto& [taken, other] : call->keywords) {
        if (taken == name) {
          return FailureAt(tokens_.line(), absl::StrCat("argument '", name, "' is given twice"));
        }
      }
      call->keywords.emplace_back(std::move(name), std::move(value));
      continue;
    }
    if (!call->keywords.empty()) {
      return FailureAt(tokens_.line(), "a plain argument follows a named one");
    }
    ASSIGN_OR_RETURN(ExprPtr value, Expression());
    RETURN_IF_ERROR(Add(call, std::move(value)));
  }
  return tokens_.ExpectOperator(")");
}

}  // namespace tessera::decode::jinja
