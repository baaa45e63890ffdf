#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// UTF-8 as Unicode 16, table 3-7 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
namespace tessera::text {

// OK, or INVALID_ARGUMENT (reason INVALID_UTF8) with the offset of the first bad byte.
absl::Status ValidateUtf8(absl::string_view text);

struct Utf8Scan {
  enum Kind { kValid, kInvalid, kIncomplete };
  Kind kind;
  size_t bytes;         // of the character, of the maximal bad part, or up to the end of the text
  uint32_t code_point;  // of a valid character, else 0
};
// The character that starts at `at`. kIncomplete: the text ends within a character that is good so
// far. REQUIRES: at < text.size().
Utf8Scan ScanUtf8(absl::string_view text, size_t at);

// Bytes of the character that starts with `lead`. REQUIRES: valid UTF-8.
inline size_t Utf8Length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Start of the character that ends just before `end`. REQUIRES: valid UTF-8, end > 0.
size_t PreviousChar(absl::string_view text, size_t end);

// REQUIRES: a scalar value (no surrogate, at most U+10FFFF).
void AppendUtf8(uint32_t code_point, std::string* out);

// Bytes in any pieces to valid UTF-8: holds back only bytes that may still become a character; each
// maximal bad part becomes one U+FFFD at once. At most 3 bytes are held.
class Utf8Repair {
 public:
  std::string Add(absl::string_view bytes);
  std::string Flush();  // what is held, as U+FFFD; starts anew

 private:
  std::string held_;
};

}  // namespace tessera::text
