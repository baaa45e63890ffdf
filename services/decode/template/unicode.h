#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

// Characters as Python sees them. Texts are valid UTF-8; a stray byte counts as one character.
namespace tessera::decode::jinja {

struct Char {
  uint32_t code = 0;
  size_t bytes = 0;  // 1 to 4
};

// REQUIRES: at < text.size().
Char CharAt(absl::string_view text, size_t at);
size_t CountChars(absl::string_view text);
void AppendChar(uint32_t code, std::string* out);

bool IsSpace(uint32_t code);      // str.isspace
bool IsLineBreak(uint32_t code);  // where str.splitlines splits
bool IsPrintable(uint32_t code);  // what repr() leaves as it is
bool IsCased(uint32_t code);      // has an upper, lower or title form

// Full mappings (one character may become three).
std::string UpperOf(uint32_t code);
std::string LowerOf(uint32_t code);
std::string TitleOf(uint32_t code);

}  // namespace tessera::decode::jinja
