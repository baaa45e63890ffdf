#include "common/text/marked_text.h"

#include "common/base/check.h"

namespace tessera::text {

MarkedView MarkedView::Sub(size_t begin, size_t end) const {
  return {text.substr(begin, end - begin), marks.empty() ? marks : marks.substr(begin, end - begin),
          first && begin == 0};
}

bool MarkedView::Untrusted(size_t begin, size_t end) const {
  return !marks.empty() && marks.substr(begin, end - begin).find('\1') != absl::string_view::npos;
}

void MarkedText::Append(const MarkedView& view) {
  text_.append(view.text.data(), view.text.size());
  if (!marked_) return;
  if (view.marks.empty()) {
    marks_.append(view.text.size(), 0);
  } else {
    marks_.append(view.marks.data(), view.marks.size());
  }
}

void MarkedText::Reserve(size_t bytes) {
  text_.reserve(bytes);
  if (marked_) marks_.reserve(bytes);
}

std::string MarksOf(absl::Span<const ByteRange> untrusted, size_t bytes) {
  std::string marks(bytes, 0);
  size_t last = 0;
  for (const ByteRange& range : untrusted) {
    CHECK_LE(last, range.begin);
    CHECK_LE(range.begin, range.end);
    CHECK_LE(range.end, bytes);
    marks.replace(range.begin, range.end - range.begin, range.end - range.begin, 1);
    last = range.end;
  }
  return marks;
}

}  // namespace tessera::text
