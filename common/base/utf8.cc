#include "common/base/utf8.h"

namespace tessera::base {

size_t CharacterBytes(absl::string_view text) {
  const auto at = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < low || at(1) > high) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (at(i) < 0x80 || at(i) > 0xbf) return 0;
  }
  return bytes;
}

std::string ToUtf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const absl::string_view next = bytes == 0 ? kReplacementCharacter : text.substr(0, bytes);
    out.append(next.data(), next.size());
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

std::string Excerpt(absl::string_view text, size_t most) {
  constexpr absl::string_view kRest = "...";
  std::string out;
  size_t end = 0;  // of what is shown where not all is
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const absl::string_view next = bytes == 0 ? kReplacementCharacter : text.substr(0, bytes);
    if (out.size() + next.size() > most) {
      out.resize(end);
      out.append(kRest.data(), kRest.size());
      return out;
    }
    out.append(next.data(), next.size());
    if (out.size() + kRest.size() <= most) end = out.size();
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

}  // namespace tessera::base
