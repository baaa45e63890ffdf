#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/lexer.h"

namespace tessera::decode::jinja {

// A cursor over tokens; past the end it stays at the last one (kEnd).
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(position_ + ahead, tokens_.size() - 1)];
  }
  Token Take() { return tokens_[std::min(position_++, tokens_.size() - 1)]; }
  int line() const { return Peek().line; }

  bool Is(TokenKind kind, size_t ahead = 0) const { return Peek(ahead).kind == kind; }
  bool IsName(absl::string_view name, size_t ahead = 0) const {
    return Is(TokenKind::kName, ahead) && Peek(ahead).text == name;
  }
  bool IsOperator(absl::string_view text, size_t ahead = 0) const {
    return Is(TokenKind::kOperator, ahead) && Peek(ahead).text == text;
  }
  bool SkipName(absl::string_view name) { return Skip(IsName(name)); }
  bool SkipOperator(absl::string_view text) { return Skip(IsOperator(text)); }

  absl::Status ExpectOperator(absl::string_view text) {
    if (SkipOperator(text)) return absl::OkStatus();
    return Unexpected(absl::StrCat("'", text, "'"));
  }
  absl::Status ExpectName(absl::string_view name) {
    if (SkipName(name)) return absl::OkStatus();
    return Unexpected(absl::StrCat("'", name, "'"));
  }
  absl::Status Expect(TokenKind kind, absl::string_view what) {
    if (Skip(Is(kind))) return absl::OkStatus();
    return Unexpected(what);
  }

  absl::Status Unexpected(absl::string_view wanted) const {
    return FailureAt(line(), absl::StrCat("expected ", wanted, ", found ", Describe(Peek())));
  }

 private:
  bool Skip(bool here) {
    if (here) ++position_;
    return here;
  }

  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kBlockEnd:
      case TokenKind::kVariableEnd:
        return "the end of the tag";
      case TokenKind::kData:
        return "text";
      default:
        return absl::StrCat("'", token.text, "'");
    }
  }

  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace tessera::decode::jinja
