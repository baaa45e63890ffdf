#include "common/text/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

namespace tessera::text {
namespace {

std::vector<int32_t> LibraryNormal(const std::vector<int32_t>& text, int options) {
  std::vector<int32_t> out(text.size() * 32 + 1);
  size_t size = 0;
  std::string utf8;
  for (const int32_t c : text) {
    utf8proc_uint8_t bytes[4];
    const auto count = utf8proc_encode_char(c, bytes);
    utf8.append(reinterpret_cast<char*>(bytes), count);
  }
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(utf8.data());
  size = utf8proc_decompose(data, utf8.size(), out.data(), out.size(),
                            static_cast<utf8proc_option_t>(options));
  size = utf8proc_normalize_utf32(out.data(), size, static_cast<utf8proc_option_t>(options));
  out.resize(size);
  return out;
}

// Characters that compose, decompose, reorder, or do nothing.
const std::vector<int32_t> kAtoms = {
    'a',    'e',    '<',    0xC5,   0xE9,   0x1E69, 0x212B, 0x300,   0x301,   0x307,
    0x323,  0x327,  0x338,  0x344,  0xF71,  0xF72,  0xF73,  0x1100,  0x1161,  0x11A8,
    0xAC00, 0xAC01, 0x304B, 0x3099, 0x4E16, 0xFB01, 0xBD,   0x1F600, 0x1D15E, 0x1D165,
    0x9C7,  0x9BE,  0x200D, 0x5D0,  0x5B8,  0xDDC,  0xDCA,  0xDCF,   0xA0};

struct FormCase {
  NormalForm form;
  int options;
};
const std::vector<FormCase> kForms = {
    {NormalForm::kNfc, UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {NormalForm::kNfd, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {NormalForm::kNfkc, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {NormalForm::kNfkd, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

TEST(UnicodeTest, NormalizingSegmentBySegmentEqualsTheWholeText) {
  std::mt19937 random(7);
  for (const FormCase& form : kForms) {
    for (int round = 0; round < 20000; ++round) {
      std::vector<int32_t> text(random() % 9);
      for (int32_t& c : text) c = kAtoms[random() % kAtoms.size()];
      std::vector<int32_t> joined, segment;
      const auto flush = [&] {
        for (const int32_t c : Normalize(segment, form.form)) joined.push_back(c);
        segment.clear();
      };
      for (const int32_t c : text) {
        if (StartsSegment(c, form.form)) flush();
        segment.push_back(c);
      }
      flush();
      ASSERT_EQ(joined, LibraryNormal(text, form.options)) << "round " << round;
    }
  }
}

TEST(UnicodeTest, AMillionUnorderedMarksAreSorted) {
  std::vector<int32_t> text = {'a'};
  for (int i = 0; i < 500000; ++i) {
    text.push_back(0x301);  // class 230
    text.push_back(0x323);  // class 220
  }
  const std::vector<int32_t> out = Normalize(text, NormalForm::kNfc);
  EXPECT_EQ(out.front(), 0x1EA1);  // a with a dot below
  EXPECT_EQ(out[1], 0x323);
  EXPECT_EQ(out.back(), 0x301);
}

TEST(UnicodeTest, WhiteSpaceIsTheUnicodeProperty) {
  for (const uint32_t c : {0x9u, 0xDu, 0x20u, 0x85u, 0xA0u, 0x1680u, 0x2028u, 0x3000u}) {
    EXPECT_TRUE(IsWhiteSpace(c)) << c;
  }
  for (const uint32_t c : {0x180Eu, 0x200Bu, 0xFEFFu, 0x1Cu}) EXPECT_FALSE(IsWhiteSpace(c)) << c;
}

TEST(UnicodeTest, WordsAndNumbersAreUnicodeClasses) {
  for (const uint32_t c : {0x5Fu, 0x61u, 0x661u, 0x4E16u, 0x301u, 0x2160u, 0x24D0u, 0x200Du}) {
    EXPECT_TRUE(IsWordChar(c)) << c;
  }
  for (const uint32_t c : {0x20u, 0x2Du, 0xBDu, 0x1F600u}) EXPECT_FALSE(IsWordChar(c)) << c;
  for (const uint32_t c : {0x31u, 0xB2u, 0xBDu, 0x2167u}) EXPECT_TRUE(IsNumeric(c)) << c;
  EXPECT_FALSE(IsNumeric('a'));
}

}  // namespace
}  // namespace tessera::text
