#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// Text in which every byte knows whether a user wrote it.
namespace tessera::text {

struct ByteRange {
  size_t begin, end;  // half-open, bytes of the text
};

// Borrows the bytes and their marks. All positions are byte offsets.
struct MarkedView {
  absl::string_view text;
  absl::string_view marks;  // one byte per byte of text, 1 = untrusted; empty = all trusted
  bool first = false;       // starts at byte 0 of what was passed to Encode

  MarkedView Sub(size_t begin, size_t end) const;
  bool Untrusted(size_t begin, size_t end) const;  // any byte of [begin, end)
};

// Owns them. Marks are kept only when `marked`.
class MarkedText {
 public:
  explicit MarkedText(bool marked) : marked_(marked) {}

  void Append(absl::string_view text, bool untrusted) {
    text_.append(text.data(), text.size());
    if (marked_) marks_.append(text.size(), untrusted ? 1 : 0);
  }
  void Append(const MarkedView& view);  // keeps the marks
  MarkedView View(bool first) const { return {text_, marks_, first}; }
  void Reserve(size_t bytes);

 private:
  bool marked_;
  std::string text_;
  std::string marks_;
};

// The marks of `bytes` bytes. REQUIRES: ranges sorted, disjoint and within the text.
std::string MarksOf(absl::Span<const ByteRange> untrusted, size_t bytes);

}  // namespace tessera::text
