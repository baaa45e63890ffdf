#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/decode/template/limits.h"

namespace tessera::decode::jinja {

enum class TokenKind {
  kData,           // text outside tags, white space already trimmed
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,    // unescaped
  kInteger,   // decimal digits
  kFloat,     // as std::strtod reads it
  kOperator,  // spelled in `text`
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// Cuts a template as Jinja does with trim_blocks and lstrip_blocks: `{%-`, `-%}`, `{%+`, comments,
// raw blocks, one trailing newline dropped, any newline becomes \n. The last token is kEnd.
// Failure with the line: an unclosed tag, string, comment or bracket, a bad character or escape.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source, const Limits& limits);

}  // namespace tessera::decode::jinja
