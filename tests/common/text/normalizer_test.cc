#include "common/text/normalizer.h"

#include <gtest/gtest.h>

#include "common/base/error.h"

namespace tessera::text {
namespace {

std::string Normal(const std::string& json, const std::string& text, const std::string& marks = "",
                   std::string* marks_out = nullptr) {
  const base::Json parsed = base::Json::parse(json);
  const auto normalizer = ParseNormalizer(&parsed, "normalizer");
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  if (!normalizer.ok()) return "";
  const auto out = (*normalizer)->Normalize({text, marks, true});
  EXPECT_TRUE(out.ok()) << out.status();
  if (marks_out != nullptr) *marks_out = std::string(out->View(true).marks);
  return std::string(out->View(true).text);
}

TEST(NormalizerTest, FormsComposeAndDecompose) {
  EXPECT_EQ(Normal(R"({"type": "NFC"})", "e\u0301 \u1100\u1161 \u212B"), "\u00E9 \uAC00 \u00C5");
  EXPECT_EQ(Normal(R"({"type": "NFD"})", "\u00E9"), "e\u0301");
  EXPECT_EQ(Normal(R"({"type": "NFKC"})", "\uFB01\u00BD"), "fi1\u20442");
  EXPECT_EQ(Normal(R"({"type": "NFKD"})", "\uFB01\u00E9"), "fie\u0301");
}

TEST(NormalizerTest, SequencesRunInOrder) {
  EXPECT_EQ(Normal(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
                    {"type": "Replace", "pattern": {"Regex": "_{2,}"}, "content": "="}]})",
                   " a b"),
            "=a_b");
}

TEST(NormalizerTest, PrependAddsNothingToNothing) {
  EXPECT_EQ(Normal(R"({"type": "Prepend", "prepend": "_"})", ""), "");
}

TEST(NormalizerTest, StripTrimsWhiteSpaceOnTheNamedSides) {
  EXPECT_EQ(Normal(R"({"type": "Strip", "strip_left": true, "strip_right": false})", "\u3000a "),
            "a ");
  EXPECT_EQ(Normal(R"({"type": "Strip", "strip_left": true, "strip_right": true})", " \n "), "");
}

// The limit counts what every byte matching would make: 256 MiB.
TEST(NormalizerTest, AReplaceThatCouldEatTheMemoryIsRefusedBeforeItStarts) {
  const base::Json json = {{"type", "Replace"},
                           {"pattern", {{"String", "x"}}},
                           {"content", std::string(size_t{1} << 20, 'y')}};
  const auto normalizer = ParseNormalizer(&json, "normalizer");
  ASSERT_TRUE(normalizer.ok()) << normalizer.status();
  const std::string longest(256, ' ');
  const auto whole = (*normalizer)->Normalize({longest, "", true});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->View(true).text, longest);
  const absl::Status refused = (*normalizer)->Normalize({longest + "x", "", true}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(refused), "TEXT_TOO_LONG");
  EXPECT_NE(refused.message().find("268435456 bytes"), absl::string_view::npos) << refused;
}

TEST(NormalizerTest, AComposedCharacterIsUntrustedWhenAPartIs) {
  std::string marks;
  EXPECT_EQ(Normal(R"({"type": "NFC"})", "xe\u0301y", std::string("\0\0\1\1\0", 5), &marks),
            "x\u00E9y");
  EXPECT_EQ(marks, std::string("\0\1\1\0", 4));
}

TEST(NormalizerTest, UnknownTypesAreRefusedByName) {
  const base::Json json = {{"type", "BertNormalizer"}};
  const auto status = ParseNormalizer(&json, "normalizer").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("BertNormalizer"), absl::string_view::npos);
}

}  // namespace
}  // namespace tessera::text
