#include "services/decode/stream/stop_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/error.h"

namespace tessera::decode {
namespace {

struct Cut {
  std::string text;
  std::string stop;
  size_t pieces = 0;  // taken when the matcher said stop
};

Cut Feed(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  StopMatcher matcher(stops);
  Cut cut;
  for (const std::string& piece : pieces) {
    ++cut.pieces;
    if (matcher.Push(piece, cut.text)) break;
  }
  matcher.Finish(cut.text);
  cut.stop = std::string(matcher.stop());
  return cut;
}

TEST(StopMatcherTest, NothingOfAStopIsGivenOutWhileItIsSpelledLetterByLetter) {
  std::vector<std::string> alphabet;
  for (char c = 'A'; c <= 'Z'; ++c) alphabet.emplace_back(1, c);
  const Cut cut = Feed(alphabet, {"DEFGHIJ"});
  EXPECT_EQ(cut.text, "ABC");
  EXPECT_EQ(cut.stop, "DEFGHIJ");
  EXPECT_EQ(cut.pieces, 10u);
}

TEST(StopMatcherTest, AStopThatEndsInsideAPieceFires) {
  const Cut cut = Feed({"I love ", "Paris", " very"}, {"Pari"});
  EXPECT_EQ(cut.text, "I love ");
  EXPECT_EQ(cut.pieces, 2u);
}

TEST(StopMatcherTest, TextIsGivenOutAsSoonAsItCannotBecomeAStop) {
  StopMatcher matcher({"abc"});
  std::string out;
  EXPECT_FALSE(matcher.Push("xab", out));
  EXPECT_EQ(out, "x");
  EXPECT_FALSE(matcher.Push("ab", out));
  EXPECT_EQ(out, "xab");
  EXPECT_TRUE(matcher.Push("c", out));
  EXPECT_EQ(out, "xab");
}

TEST(StopMatcherTest, TheTailIsFlushedAtTheEnd) {
  EXPECT_EQ(Feed({"ends with a", "b"}, {"abc"}).text, "ends with ab");
}

TEST(StopMatcherTest, OfTwoStopsTheOneThatBeginsFirstCuts) {
  EXPECT_EQ(Feed({"x", "ab", "cd", "y"}, {"bc", "abcd"}).text, "x");
  EXPECT_EQ(Feed({"xabcd"}, {"bc", "abcd"}).text, "x");
  // The earlier one never completes.
  const Cut cut = Feed({"x", "abc", "e"}, {"bc", "abcd"});
  EXPECT_EQ(cut.text, "xa");
  EXPECT_EQ(cut.stop, "bc");
  EXPECT_EQ(Feed({"xabc"}, {"bc", "abcd"}).text, "xa");
}

TEST(StopMatcherTest, OneStopMayBeThePrefixOfAnother) {
  const Cut cut = Feed({"x", "a", "b", "c"}, {"abc", "ab"});
  EXPECT_EQ(cut.text, "x");
  EXPECT_EQ(cut.stop, "ab");
  EXPECT_EQ(cut.pieces, 3u);
}

TEST(StopMatcherTest, WithoutStopsEveryPiecePassesAtOnce) {
  StopMatcher matcher({});
  std::string out;
  EXPECT_FALSE(matcher.Push("a", out));
  EXPECT_EQ(out, "a");
  EXPECT_FALSE(matcher.Finish(out));
}

TEST(StopMatcherTest, PiecesBehindTheStopAreIgnored) {
  StopMatcher matcher({"b"});
  std::string out;
  EXPECT_TRUE(matcher.Push("ab", out));
  EXPECT_TRUE(matcher.Push("cd", out));
  EXPECT_TRUE(matcher.Finish(out));
  EXPECT_EQ(out, "a");
}

TEST(StopMatcherTest, AStopThatBeginsLikeItselfIsFoundBehindABeginInVain) {
  StopMatcher matcher({"aab"});
  std::string out;
  EXPECT_FALSE(matcher.Push("aaa", out));
  EXPECT_EQ(out, "a");  // "aa" may still become it
  EXPECT_FALSE(matcher.Push("", out));
  EXPECT_TRUE(matcher.Push("b", out));
  EXPECT_EQ(out, "a");
}

TEST(ValidateStopsTest, BadStopsNameTheField) {
  EXPECT_TRUE(ValidateStops({}).ok());
  EXPECT_TRUE(ValidateStops(std::vector<std::string>(16, std::string(256, 'x'))).ok());
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>(17, "x"), std::vector<std::string>(100'000, "x"),
        std::vector<std::string>{""}, std::vector<std::string>{"a", std::string(257, 'x')}}) {
    const absl::Status status = ValidateStops(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(base::FieldOf(status), "options.stop");
  }
}

}  // namespace
}  // namespace tessera::decode
