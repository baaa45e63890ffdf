#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/base/status_macros.h"
#include "services/decode/template/parser_expr.h"

namespace tessera::decode::jinja {

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

absl::StatusOr<ExprPtr> ExprParser::Postfix(ExprPtr node) {
  for (;;) {
    if (tokens_.IsOperator(".")) {
      ASSIGN_OR_RETURN(node, Attribute(std::move(node)));
    } else if (tokens_.IsOperator("[")) {
      ASSIGN_OR_RETURN(node, Subscript(std::move(node)));
    } else if (tokens_.IsOperator("(")) {
      ExprPtr call = Make(ExprKind::kCall, tokens_.line());
      RETURN_IF_ERROR(Add(call.get(), std::move(node)));
      RETURN_IF_ERROR(CallArguments(call.get()));
      node = std::move(call);
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
