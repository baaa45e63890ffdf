#include "common/text/split.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"

namespace tessera::text {
namespace {

// Joins each match to its neighbour before it (in the order given), as the library does: only a
// match that does not follow another match.
std::vector<SplitPiece> MergeMatches(const std::vector<SplitPiece>& pieces) {
  std::vector<SplitPiece> out;
  bool after_match = false;
  for (const SplitPiece& piece : pieces) {
    if (piece.match && !after_match && !out.empty()) {
      out.back().begin = std::min(out.back().begin, piece.begin);
      out.back().end = std::max(out.back().end, piece.end);
    } else {
      out.push_back(piece);
    }
    after_match = piece.match;
  }
  return out;
}

std::vector<SplitPiece> JoinEqual(const std::vector<SplitPiece>& pieces) {
  std::vector<SplitPiece> out;
  for (const SplitPiece& piece : pieces) {
    if (!out.empty() && out.back().match == piece.match) {
      out.back().end = piece.end;
    } else {
      out.push_back(piece);
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<Pattern> Pattern::Parse(const base::Json& json, absl::string_view path) {
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(json, path));
  Pattern pattern;
  if (fields.Find("String") != nullptr) {
    ASSIGN_OR_RETURN(pattern.literal_, fields.String("String"));
    return pattern;
  }
  if (fields.Find("Regex") == nullptr) return BadTokenizer(path, "needs \"String\" or \"Regex\"");
  ASSIGN_OR_RETURN(const std::string regex, fields.String("Regex"));
  ASSIGN_OR_RETURN(pattern.regex_, Regex::Compile(regex, fields.PathOf("Regex")));
  return pattern;
}

Pattern Pattern::Literal(std::string text) {
  Pattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

absl::Status Pattern::ForEachMatch(absl::string_view text,
                                   absl::FunctionRef<void(size_t, size_t)> visit) const {
  if (regex_ != nullptr) return regex_->ForEachMatch(text, visit);
  if (literal_.empty()) return absl::OkStatus();
  for (size_t at = text.find(literal_); at != absl::string_view::npos;
       at = text.find(literal_, at + literal_.size())) {
    visit(at, at + literal_.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<MarkedText> Pattern::Replace(const MarkedView& text,
                                            absl::string_view content) const {
  MarkedText out(!text.marks.empty());
  out.Reserve(text.text.size());
  size_t copied = 0;
  RETURN_IF_ERROR(ForEachMatch(text.text, [&](size_t begin, size_t end) {
    out.Append(text.Sub(copied, begin));
    // What is put in at an empty match belongs to the character behind it.
    out.Append(content, text.Untrusted(begin, std::max(end, begin + 1)));
    copied = end;
  }));
  out.Append(text.Sub(copied, text.text.size()));
  return out;
}

absl::StatusOr<SplitBehavior> ParseSplitBehavior(const std::string& name, absl::string_view path) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return UnsupportedTokenizer(path, absl::StrCat("\"", name, "\""),
                              "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

void AddMatch(size_t begin, size_t end, std::vector<SplitPiece>* pieces) {
  const size_t covered = pieces->empty() ? 0 : pieces->back().end;
  if (covered < begin) pieces->push_back({covered, begin, false});
  pieces->push_back({begin, end, true});
}

void AddRest(size_t size, std::vector<SplitPiece>* pieces) {
  const size_t covered = pieces->empty() ? 0 : pieces->back().end;
  if (covered < size) pieces->push_back({covered, size, false});
}

std::vector<SplitPiece> ApplyBehavior(std::vector<SplitPiece> pieces, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kRemoved:
      pieces.erase(std::remove_if(pieces.begin(), pieces.end(),
                                  [](const SplitPiece& piece) { return piece.match; }),
                   pieces.end());
      break;
    case SplitBehavior::kContiguous:
      pieces = JoinEqual(pieces);
      break;
    case SplitBehavior::kMergedWithPrevious:
      pieces = MergeMatches(pieces);
      break;
    case SplitBehavior::kMergedWithNext:
      std::reverse(pieces.begin(), pieces.end());
      pieces = MergeMatches(pieces);
      std::reverse(pieces.begin(), pieces.end());
      break;
  }
  pieces.erase(std::remove_if(pieces.begin(), pieces.end(),
                              [](const SplitPiece& piece) { return piece.begin == piece.end; }),
               pieces.end());
  return pieces;
}

}  // namespace tessera::text
