#include "common/text/split.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace tessera::text {
namespace {

// "the-final--countdown" as the library's documentation cuts it.
std::string Cut(SplitBehavior behavior) {
  const std::string text = "the-final--countdown";
  std::vector<SplitPiece> pieces;
  EXPECT_TRUE(Pattern::Literal("-")
                  .ForEachMatch(text, [&](size_t b, size_t e) { AddMatch(b, e, &pieces); })
                  .ok());
  AddRest(text.size(), &pieces);
  std::string out;
  for (const SplitPiece& piece : ApplyBehavior(pieces, behavior)) {
    absl::StrAppend(&out, text.substr(piece.begin, piece.end - piece.begin), "|");
  }
  return out;
}

TEST(SplitTest, BehavioursKeepDropOrJoinTheMatches) {
  EXPECT_EQ(Cut(SplitBehavior::kRemoved), "the|final|countdown|");
  EXPECT_EQ(Cut(SplitBehavior::kIsolated), "the|-|final|-|-|countdown|");
  EXPECT_EQ(Cut(SplitBehavior::kMergedWithPrevious), "the-|final-|-|countdown|");
  EXPECT_EQ(Cut(SplitBehavior::kMergedWithNext), "the|-final|-|-countdown|");
  EXPECT_EQ(Cut(SplitBehavior::kContiguous), "the|-|final|--|countdown|");
}

TEST(SplitTest, ReplacementCarriesTheMarkOfWhatItReplaces) {
  const std::string text = "a b c", marks("\0\1\0\0\0", 5);
  const auto replaced = Pattern::Literal(" ").Replace({text, marks, true}, "\u2581");
  ASSERT_TRUE(replaced.ok());
  const MarkedView view = replaced->View(true);
  EXPECT_EQ(view.text, "a\u2581b\u2581c");
  EXPECT_EQ(std::string(view.marks), std::string("\0\1\1\1\0\0\0\0\0", 9));
}

TEST(SplitTest, UnknownBehaviourIsRefused) {
  EXPECT_FALSE(ParseSplitBehavior("Sideways", "pre_tokenizer.behavior").ok());
}

}  // namespace
}  // namespace tessera::text
