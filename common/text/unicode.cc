#include "common/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "common/base/check.h"

namespace tessera::text {
namespace {

// The longest decomposition of one character has 18 code points (U+FDFA).
constexpr int kLongestDecomposition = 32;

bool Composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

utf8proc_option_t DecomposeOptions(NormalForm form) {
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

int Decompose(int32_t code_point, NormalForm form, int32_t* out) {
  int last_boundclass = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(code_point, out, kLongestDecomposition,
                                                         DecomposeOptions(form), &last_boundclass);
  CHECK(count >= 0 && count <= kLongestDecomposition);
  return static_cast<int>(count);
}

int CombiningClass(int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Vowels and final consonants of Hangul join the syllable before them by arithmetic.
bool IsJamoTail(int32_t code_point) {
  return (code_point >= 0x1161 && code_point <= 0x1175) ||
         (code_point >= 0x11A8 && code_point <= 0x11C2);
}

// utf8proc numbers the second halves of its composition pairs from 0x8000; 0xFFFF is "in no pair".
bool IsSecondHalf(int32_t code_point) {
  const uint16_t index = utf8proc_get_property(code_point)->comb_index;
  return index >= 0x8000 && index != 0xFFFF;
}

// Sorts each run of combining marks by class, stably (the canonical order).
void SortMarks(std::vector<int32_t>* text) {
  for (size_t i = 0; i < text->size();) {
    size_t end = i;
    while (end < text->size() && CombiningClass((*text)[end]) != 0) ++end;
    std::stable_sort(text->begin() + i, text->begin() + end,
                     [](int32_t a, int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    i = end + 1;
  }
}

}  // namespace

bool IsWhiteSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordChar(uint32_t c) {
  switch (utf8proc_category(static_cast<int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Join_Control, and the symbols that are Other_Alphabetic (circled and squared letters).
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
             (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189);
  }
}

bool IsNumeric(uint32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool StartsSegment(uint32_t code_point, NormalForm form) {
  if (code_point < 0xA0) return true;
  int32_t parts[kLongestDecomposition];
  if (Decompose(static_cast<int32_t>(code_point), form, parts) == 0) return false;
  if (CombiningClass(parts[0]) != 0) return false;
  if (!Composes(form)) return true;
  return !IsJamoTail(parts[0]) && !IsSecondHalf(parts[0]);
}

std::vector<int32_t> Normalize(std::vector<int32_t> code_points, NormalForm form) {
  std::vector<int32_t> out;
  out.reserve(code_points.size());
  int32_t parts[kLongestDecomposition];
  for (const int32_t code_point : code_points) {
    const int count = Decompose(code_point, form, parts);
    out.insert(out.end(), parts, parts + count);
  }
  SortMarks(&out);
  if (Composes(form) && !out.empty()) {
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        out.data(), static_cast<utf8proc_ssize_t>(out.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    CHECK_GE(count, 0);
    out.resize(static_cast<size_t>(count));
  }
  return out;
}

}  // namespace tessera::text
