#include "common/text/added_tokens.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"
#include "common/text/unicode.h"
#include "common/text/utf8.h"

namespace tessera::text {
namespace {

// The search may look at this many bytes again for each position.
constexpr size_t kMaxContentBytes = 1024;

bool WordBefore(absl::string_view text, size_t at) {
  return at > 0 && IsWordChar(ScanUtf8(text, PreviousChar(text, at)).code_point);
}

bool WordAt(absl::string_view text, size_t at) {
  return at < text.size() && IsWordChar(ScanUtf8(text, at).code_point);
}

size_t SkipSpaceBack(absl::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    const size_t previous = PreviousChar(text, at);
    if (!IsWhiteSpace(ScanUtf8(text, previous).code_point)) break;
    at = previous;
  }
  return std::max(at, limit);
}

size_t SkipSpace(absl::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Scan scan = ScanUtf8(text, at);
    if (!IsWhiteSpace(scan.code_point)) break;
    at += scan.bytes;
  }
  return at;
}

}  // namespace

absl::StatusOr<AddedToken> ParseAddedToken(const base::Json& json, absl::string_view path) {
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(json, path));
  AddedToken token;
  ASSIGN_OR_RETURN(token.content, fields.String("content"));
  if (token.content.empty()) return BadTokenizer(fields.PathOf("content"), "is empty");
  if (token.content.size() > kMaxContentBytes) {
    return BadTokenizer(fields.PathOf("content"),
                        absl::StrCat("is longer than ", kMaxContentBytes, " bytes"));
  }
  ASSIGN_OR_RETURN(token.single_word, fields.Bool("single_word", false));
  ASSIGN_OR_RETURN(token.lstrip, fields.Bool("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, fields.Bool("rstrip", false));
  ASSIGN_OR_RETURN(token.special, fields.Bool("special", false));
  ASSIGN_OR_RETURN(token.normalized, fields.Bool("normalized", !token.special));
  return token;
}

bool MatchRules::IsControl(int32_t id) const {
  return std::binary_search(control_ids.begin(), control_ids.end(), id);
}

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens,
                                     const std::vector<std::string>& contents)
    : tokens_(tokens), token_of_node_(1, -1) {
  CHECK_EQ(tokens.size(), contents.size());
  for (size_t i = 0; i < contents.size(); ++i) {
    CHECK(!contents[i].empty());
    starts_[static_cast<uint8_t>(contents[i][0])] = true;
    int32_t node = 0;
    for (const char c : contents[i]) {
      const uint64_t key = static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
      const auto [it, added] = next_.try_emplace(key, static_cast<int32_t>(token_of_node_.size()));
      if (added) token_of_node_.push_back(-1);
      node = it->second;
    }
    CHECK_EQ(token_of_node_[node], -1);
    token_of_node_[node] = static_cast<int32_t>(i);
  }
}

void AddedTokenMatcher::ForEachAt(
    absl::string_view text, size_t at,
    absl::FunctionRef<void(const AddedToken& token, size_t end)> visit) const {
  if (!starts_[static_cast<uint8_t>(text[at])]) return;
  int32_t node = 0;
  while (at < text.size()) {
    const auto it = next_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[at++]));
    if (it == next_.end()) return;
    node = it->second;
    if (token_of_node_[node] >= 0) visit(tokens_[token_of_node_[node]], at);
  }
}

bool AddedTokenMatcher::HoldsTrustedControl(const MarkedView& text, size_t begin, size_t end,
                                            const MatchRules& rules) const {
  bool holds = false;
  for (size_t at = begin; at < end && !holds; at += Utf8Length(text.text[at])) {
    if (text.Untrusted(at, at + 1)) continue;
    ForEachAt(text.text, at, [&](const AddedToken& token, size_t token_end) {
      holds |= rules.IsControl(token.id) && !text.Untrusted(at, token_end);
    });
  }
  return holds;
}

AddedTokenMatcher::Found AddedTokenMatcher::LongestAt(const MarkedView& text, size_t at,
                                                      const MatchRules& rules) const {
  Found found;
  ForEachAt(text.text, at, [&](const AddedToken& token, size_t end) {
    if (text.Untrusted(at, end) &&
        (rules.IsControl(token.id) || HoldsTrustedControl(text, at, end, rules))) {
      return;
    }
    found = {&token, end};
  });
  return found;
}

absl::Status AddedTokenMatcher::ForEachPart(
    const MarkedView& text, const MatchRules& rules,
    absl::FunctionRef<absl::Status(const MarkedView&)> on_text,
    absl::FunctionRef<void(int32_t)> on_token) const {
  size_t done = 0;  // everything before was handed out
  for (size_t at = 0; at < text.text.size();) {
    const Found found = LongestAt(text, at, rules);
    if (found.token == nullptr) {
      at += Utf8Length(text.text[at]);
      continue;
    }
    const AddedToken& token = *found.token;
    const bool in_word =
        token.single_word && (WordBefore(text.text, at) || WordAt(text.text, found.end));
    const size_t match = at;
    at = found.end;
    if (in_word || (token.special && !rules.parse_special)) continue;
    const size_t begin = token.lstrip ? SkipSpaceBack(text.text, match, done) : match;
    if (done < begin) RETURN_IF_ERROR(on_text(text.Sub(done, begin)));
    on_token(token.id);
    done = token.rstrip ? SkipSpace(text.text, found.end) : found.end;
  }
  if (done < text.text.size()) return on_text(text.Sub(done, text.text.size()));
  return absl::OkStatus();
}

}  // namespace tessera::text
