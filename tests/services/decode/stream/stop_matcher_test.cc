#include "services/decode/stream/stop_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
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

// The obvious answer, on the whole text.
Cut Expected(const std::string& text, const std::vector<std::string>& stops) {
  size_t first = std::string::npos;
  std::string which;
  for (const std::string& stop : stops) {
    const size_t at = text.find(stop);
    if (at < first || (at == first && at != std::string::npos && stop.size() < which.size())) {
      first = at;
      which = stop;
    }
  }
  return {text.substr(0, first), which};
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

TEST(StopMatcherTest, ForAnyTextChunkingAndStopsTheOutputIsTheTextBeforeTheFirstStop) {
  std::mt19937 random(7);
  const auto below = [&random](int n) { return static_cast<int>(random() % n); };
  const auto word = [&below](int most) {
    std::string text;
    for (int i = below(most + 1); i >= 0; --i) text += static_cast<char>('a' + below(2 + below(2)));
    return text;
  };
  for (int round = 0; round < 100'000; ++round) {
    const std::string text = word(40);
    std::vector<std::string> stops;
    for (int i = below(4); i > 0; --i) stops.push_back(word(6));
    if (stops.size() > 1 && below(2)) stops.push_back(stops[0].substr(0, 1 + stops[0].size() / 2));
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t size = below(6);  // empty pieces too
      pieces.push_back(text.substr(at, size));
      at += size;
    }
    const Cut expected = Expected(text, stops);
    const Cut cut = Feed(pieces, stops);
    ASSERT_EQ(cut.text, expected.text) << text << " " << ::testing::PrintToString(stops);
    ASSERT_EQ(cut.stop, expected.stop) << text << " " << ::testing::PrintToString(stops);
  }
}

TEST(StopMatcherTest, WhatWasGivenOutIsNeverPartOfTheStop) {
  std::mt19937 random(11);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += static_cast<char>('a' + random() % 2);
    const std::vector<std::string> stops = {text.substr(random() % 8, 1 + random() % 8)};
    const std::string before = Expected(text, stops).text;
    StopMatcher matcher(stops);
    std::string out;
    for (const char c : text) {
      matcher.Push(std::string(1, c), out);
      ASSERT_LE(out.size(), before.size());
    }
    ASSERT_EQ(out, before);
  }
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
