#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/text/marked_text.h"

namespace tessera::decode::jinja {

using text::ByteRange;

// UTF-8 bytes that know which of them a user wrote (untrusted); the template wrote the others.
class Text {
 public:
  Text() = default;
  explicit Text(absl::string_view bytes, bool untrusted = false) { Append(bytes, untrusted); }

  const std::string& bytes() const { return bytes_; }
  absl::string_view view() const { return absl::string_view(bytes_.data(), bytes_.size()); }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Sorted, apart, not empty.
  const std::vector<ByteRange>& untrusted() const { return untrusted_; }

  void Append(absl::string_view bytes, bool untrusted);
  void Append(const Text& other) { Append(other, 0, other.size()); }
  void Append(const Text& other, size_t begin, size_t end);  // bytes [begin, end) of `other`
  Text Sub(size_t begin, size_t end) const;
  // True when a user wrote any byte of [begin, end).
  bool AnyUntrusted(size_t begin, size_t end) const;
  bool AnyUntrusted() const { return !untrusted_.empty(); }
  void Reserve(size_t bytes) { bytes_.reserve(bytes); }

 private:
  void Mark(size_t begin, size_t end);  // begin >= the last marked end

  std::string bytes_;
  std::vector<ByteRange> untrusted_;
};

}  // namespace tessera::decode::jinja
