#include <algorithm>

#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/strings.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

using Ranges = std::vector<ByteRange>;

// The words between runs of white space.
Ranges Words(absl::string_view text) {
  Ranges words;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const Char character = CharAt(text, at);
    const bool space = IsSpace(character.code);
    if (!space && !inside) words.push_back({at, at});
    inside = !space;
    at += character.bytes;
    if (inside) words.back().end = at;
  }
  return words;
}

// Keeps `limit` splits of words: the rest stays in one piece, with the space inside it.
void LimitWords(absl::string_view text, int64_t limit, bool from_right, Ranges* words) {
  if (limit < 0 || static_cast<int64_t>(words->size()) <= limit + 1) return;
  const size_t keep = static_cast<size_t>(limit);
  if (from_right) {
    const size_t merged = words->size() - keep - 1;
    const ByteRange rest{0, (*words)[merged].end};
    words->erase(words->begin(), words->begin() + static_cast<int64_t>(merged));
    words->front() = rest;
  } else {
    const ByteRange rest{(*words)[keep].begin, text.size()};
    words->resize(keep + 1);
    words->back() = rest;
  }
}

Ranges PiecesFromLeft(absl::string_view text, absl::string_view separator, int64_t limit) {
  Ranges pieces;
  size_t at = 0;
  for (int64_t done = 0; limit < 0 || done < limit; ++done) {
    const size_t found = FindPart(text, separator, at);
    if (found == absl::string_view::npos) break;
    pieces.push_back({at, found});
    at = found + separator.size();
  }
  pieces.push_back({at, text.size()});
  return pieces;
}

Ranges PiecesFromRight(absl::string_view text, absl::string_view separator, int64_t limit) {
  Ranges pieces;
  size_t end = text.size();
  for (int64_t done = 0; limit < 0 || done < limit; ++done) {
    if (end < separator.size()) break;
    const size_t found = text.rfind(separator, end - separator.size());
    if (found == absl::string_view::npos) break;
    pieces.push_back({found + separator.size(), end});
    end = found;
  }
  pieces.push_back({0, end});
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

// Trailing space of the last piece of split(None, n) goes, leading space of rsplit's first.
ByteRange Stripped(absl::string_view text, ByteRange range, bool from_right) {
  size_t begin = range.begin;
  size_t last = range.begin;  // end of the last character that is no space
  bool leading = true;
  for (size_t at = range.begin; at < range.end;) {
    const Char character = CharAt(text, at);
    at += character.bytes;
    if (!IsSpace(character.code)) {
      last = at;
      leading = false;
    } else if (leading) {
      begin = at;
    }
  }
  return from_right ? ByteRange{begin, range.end} : ByteRange{range.begin, last};
}

}  // namespace

absl::StatusOr<Value> Split(const Context& context, const Text& text, const Text* separator,
                            int64_t max_splits, bool from_right) {
  const absl::string_view view = text.view();
  Ranges pieces;
  if (separator == nullptr) {
    pieces = Words(view);
    const size_t all = pieces.size();
    LimitWords(view, max_splits, from_right, &pieces);
    if (pieces.size() < all) {
      ByteRange& rest = from_right ? pieces.front() : pieces.back();
      rest = Stripped(view, rest, from_right);
    }
  } else if (separator->empty()) {
    return Failure("split: the separator is empty");
  } else if (from_right) {
    RETURN_IF_ERROR(context.budget.Steps(
        static_cast<int64_t>(view.size() / 64 * std::min<size_t>(separator->size(), 4096))));
    pieces = PiecesFromRight(view, separator->view(), max_splits);
  } else {
    pieces = PiecesFromLeft(view, separator->view(), max_splits);
  }
  Items items;
  for (const ByteRange& piece : pieces) {
    ASSIGN_OR_RETURN(Value part, context.String(text.Sub(piece.begin, piece.end)));
    items.push_back(std::move(part));
  }
  ASSIGN_OR_RETURN(Value list, context.Sequence(Flavor::kList, std::move(items)));
  return text.AnyUntrusted() ? list.WithUntrustedShape() : list;
}

absl::StatusOr<Items> SplitLines(const Context& context, const Text& text, bool keep_ends) {
  Items lines;
  const absl::string_view view = text.view();
  size_t begin = 0;
  for (size_t at = 0; at < view.size();) {
    const Char character = CharAt(view, at);
    const size_t line_end = at;
    at += character.bytes;
    if (!IsLineBreak(character.code)) {
      if (at < view.size()) continue;
    } else if (character.code == '\r' && at < view.size() && view[at] == '\n') {
      ++at;
    }
    const bool broken = IsLineBreak(character.code);
    ASSIGN_OR_RETURN(Value line,
                     context.String(text.Sub(begin, broken && !keep_ends ? line_end : at)));
    lines.push_back(std::move(line));
    begin = at;
  }
  return lines;
}

}  // namespace tessera::decode::jinja
