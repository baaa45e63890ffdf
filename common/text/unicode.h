#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// Character classes and normal forms: the only door to utf8proc (Unicode 14 in Debian 12).
namespace tessera::text {

bool IsWhiteSpace(uint32_t code_point);  // White_Space, which is what \s means in split regexes
bool IsWordChar(uint32_t code_point);    // \w of UTS 18: Alphabetic, M, Nd, Pc, Join_Control
bool IsNumeric(uint32_t code_point);     // general category N

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// True when text may be cut before this character and each part normalized alone.
bool StartsSegment(uint32_t code_point, NormalForm form);

// The normal form of one run of characters; n log n in its length.
std::vector<int32_t> Normalize(std::vector<int32_t> code_points, NormalForm form);

}  // namespace tessera::text
