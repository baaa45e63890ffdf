#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/json.h"
#include "common/text/marked_text.h"

// Tokens that are found in the text itself, before any other rule cuts it.
namespace tessera::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // needs word borders on both sides
  bool lstrip = false;       // swallows white space before it
  bool rstrip = false;       // swallows white space after it
  bool normalized = false;   // found in the normalized text, by its normalized content
  bool special = false;      // skipped by Decode(skip_special); plain text without parse_special
};

// One entry of "added_tokens" or of tokenizer_config's "added_tokens_decoder".
absl::StatusOr<AddedToken> ParseAddedToken(const base::Json& json, absl::string_view path);

struct MatchRules {
  bool parse_special = true;
  absl::Span<const int32_t> control_ids;  // sorted
  bool IsControl(int32_t id) const;
};

// Finds a set of added tokens: leftmost, then longest, without overlaps.
class AddedTokenMatcher {
 public:
  // `contents[i]` is how tokens[i] reads in the text that is searched. REQUIRES: none empty, equal
  // ones only once.
  AddedTokenMatcher(const std::vector<AddedToken>& tokens,
                    const std::vector<std::string>& contents);

  bool empty() const { return tokens_.empty(); }

  // Text between matches and matches, in order, white space that a token swallows left out.
  // A special token without parse_special, or a single_word one within a word, is text, and the
  // search goes on behind it, as the library has it. A control token that touches an untrusted byte
  // is text too, and so is any token that does and overlaps a control token of trusted bytes alone:
  // what a user wrote must not hide a token that the template wrote. There the search goes on
  // within the match. White space is swallowed whoever wrote it.
  absl::Status ForEachPart(const MarkedView& text, const MatchRules& rules,
                           absl::FunctionRef<absl::Status(const MarkedView& plain)> on_text,
                           absl::FunctionRef<void(int32_t id)> on_token) const;

 private:
  struct Found {
    const AddedToken* token = nullptr;
    size_t end = 0;
  };
  // Every token that starts at `at`, shortest first.
  void ForEachAt(absl::string_view text, size_t at,
                 absl::FunctionRef<void(const AddedToken& token, size_t end)> visit) const;
  // Whether a control token of trusted bytes alone starts in [begin, end).
  bool HoldsTrustedControl(const MarkedView& text, size_t begin, size_t end,
                           const MatchRules& rules) const;
  // The longest token that starts at `at` and may stand there.
  Found LongestAt(const MarkedView& text, size_t at, const MatchRules& rules) const;

  std::vector<AddedToken> tokens_;
  // A trie: node 0 is the root, node << 8 | byte leads on.
  absl::flat_hash_map<uint64_t, int32_t> next_;
  std::vector<int32_t> token_of_node_;  // index, or -1
  std::array<bool, 256> starts_{};      // bytes that any token starts with
};

}  // namespace tessera::text
