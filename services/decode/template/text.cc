#include "services/decode/template/text.h"

#include <algorithm>

namespace tessera::decode::jinja {
namespace {

// The first range that ends after `at`.
std::vector<ByteRange>::const_iterator FirstAfter(const std::vector<ByteRange>& ranges, size_t at) {
  return std::partition_point(ranges.begin(), ranges.end(),
                              [at](const ByteRange& range) { return range.end <= at; });
}

}  // namespace

void Text::Mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!untrusted_.empty() && untrusted_.back().end == begin) {
    untrusted_.back().end = end;
  } else {
    untrusted_.push_back({begin, end});
  }
}

void Text::Append(absl::string_view bytes, bool untrusted) {
  if (untrusted) Mark(bytes_.size(), bytes_.size() + bytes.size());
  bytes_.append(bytes.data(), bytes.size());
}

void Text::Append(const Text& other, size_t begin, size_t end) {
  const size_t base = bytes_.size();
  for (auto it = FirstAfter(other.untrusted_, begin);
       it != other.untrusted_.end() && it->begin < end; ++it) {
    Mark(base + std::max(it->begin, begin) - begin, base + std::min(it->end, end) - begin);
  }
  bytes_.append(other.bytes_, begin, end - begin);
}

Text Text::Sub(size_t begin, size_t end) const {
  Text part;
  part.Append(*this, begin, end);
  return part;
}

bool Text::AnyUntrusted(size_t begin, size_t end) const {
  auto it = FirstAfter(untrusted_, begin);
  return it != untrusted_.end() && it->begin < end;
}

}  // namespace tessera::decode::jinja
