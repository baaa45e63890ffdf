#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "common/text/marked_text.h"
#include "common/text/regex.h"

// Cutting a text at the matches of a pattern, and replacing them.
namespace tessera::text {

// {"String": "x"} or {"Regex": "x"}.
class Pattern {
 public:
  static absl::StatusOr<Pattern> Parse(const base::Json& json, absl::string_view path);
  static Pattern Literal(std::string text);

  // Matches from left to right, without overlaps. Errors as Regex::ForEachMatch.
  absl::Status ForEachMatch(absl::string_view text,
                            absl::FunctionRef<void(size_t begin, size_t end)> visit) const;
  // The text with every match replaced; a replacement carries the mark of what it replaces.
  absl::StatusOr<MarkedText> Replace(const MarkedView& text, absl::string_view content) const;

 private:
  std::string literal_;  // used when there is no regex; empty matches nothing
  std::unique_ptr<Regex> regex_;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
absl::StatusOr<SplitBehavior> ParseSplitBehavior(const std::string& name, absl::string_view path);

struct SplitPiece {
  size_t begin, end;
  bool match;
};
// Adds [begin, end) to pieces that so far end at most at `begin`; fills the gap as no match.
void AddMatch(size_t begin, size_t end, std::vector<SplitPiece>* pieces);
// Adds what is left of a text of `size` bytes as no match.
void AddRest(size_t size, std::vector<SplitPiece>* pieces);

// Pieces that cover a text, in order, to what `behavior` makes of them (empty ones dropped).
std::vector<SplitPiece> ApplyBehavior(std::vector<SplitPiece> pieces, SplitBehavior behavior);

}  // namespace tessera::text
