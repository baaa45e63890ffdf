#include "common/text/byte_level.h"

#include <array>

#include "common/text/utf8.h"

namespace tessera::text {
namespace {

constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Printable bytes keep their code point, the others follow from U+0100 on, in order.
constexpr std::array<uint16_t, 256> MakeCharOfByte() {
  std::array<uint16_t, 256> table{};
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    table[byte] = IsPrintable(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return table;
}
constexpr std::array<uint16_t, 256> kCharOfByte = MakeCharOfByte();

constexpr int kAlphabetEnd = 0x144;  // 68 bytes are not printable
constexpr std::array<int16_t, kAlphabetEnd> MakeByteOfChar() {
  std::array<int16_t, kAlphabetEnd> table{};
  for (auto& entry : table) entry = -1;
  for (int byte = 0; byte < 256; ++byte) table[kCharOfByte[byte]] = static_cast<int16_t>(byte);
  return table;
}
constexpr std::array<int16_t, kAlphabetEnd> kByteOfChar = MakeByteOfChar();

}  // namespace

MarkedText ToByteChars(const MarkedView& text) {
  MarkedText out(!text.marks.empty());
  out.Reserve(text.text.size() + text.text.size() / 2);
  std::string encoded;
  for (size_t i = 0; i < text.text.size(); ++i) {
    encoded.clear();
    AppendUtf8(kCharOfByte[static_cast<uint8_t>(text.text[i])], &encoded);
    out.Append(encoded, text.Untrusted(i, i + 1));
  }
  return out;
}

void AppendTokenBytes(absl::string_view token, std::string* out) {
  const size_t before = out->size();
  for (size_t at = 0; at < token.size();) {
    const Utf8Scan scan = ScanUtf8(token, at);
    const int byte = scan.code_point < kAlphabetEnd ? kByteOfChar[scan.code_point] : -1;
    if (byte < 0) {
      out->resize(before);
      out->append(token.data(), token.size());
      return;
    }
    out->push_back(static_cast<char>(byte));
    at += scan.bytes;
  }
}

}  // namespace tessera::text
