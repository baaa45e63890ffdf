#include "common/base/log_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "common/base/json.h"

namespace tessera::base {
namespace {

const absl::Time kNow = absl::FromUnixMillis(1'700'000'000'123);

// What a reader of the line finds; the test fails where it is no JSON object on one line.
Json Read(const std::string& line) {
  EXPECT_TRUE(!line.empty() && line.back() == '\n');
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_LE(line.size(), 4096u);
  const absl::StatusOr<Json> json = ParseJson(line);
  EXPECT_TRUE(json.ok()) << json.status() << ": " << line;
  return json.ok() ? *json : Json::object();
}

TEST(LogLineTest, IsAnObjectWithTimeLevelAndMessage) {
  EXPECT_EQ(LogLine(kNow, LogLevel::kInfo, "ready"),
            "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"info\",\"message\":\"ready\"}\n");
  EXPECT_EQ(Read(LogLine(kNow, LogLevel::kWarning, "x"))["level"], "warning");
  EXPECT_EQ(Read(LogLine(kNow, LogLevel::kError, "x"))["level"], "error");
}

TEST(LogLineTest, FactsKeepTheirTypesAndTheirOrder) {
  const std::string name = "decode";
  EXPECT_THAT(LogLine(kNow, LogLevel::kInfo, "",
                      {{"service", name},
                       {"code", "OK"},
                       {"tokens", uint32_t{7}},
                       {"least", std::numeric_limits<int64_t>::min()},
                       {"seconds", 0.25},
                       {"stream", true},
                       {"no_number", std::numeric_limits<double>::quiet_NaN()}}),
              ::testing::EndsWith("\"service\":\"decode\",\"code\":\"OK\",\"tokens\":7,"
                                  "\"least\":-9223372036854775808,\"seconds\":0.25,"
                                  "\"stream\":true,\"no_number\":null}\n"));
}

TEST(LogLineTest, AMessageCannotForgeALineOrMoveTheCursor) {
  const std::string message = "a\nb\x1b[2J\r\t\"\\\x7f\xc2\x9b\xe2\x80\xa8";
  const std::string line = LogLine(kNow, LogLevel::kInfo, message, {{"fact", message}});
  const Json json = Read(line);
  EXPECT_EQ(json["message"], message);
  EXPECT_EQ(json["fact"], message);
  for (char c : line.substr(0, line.size() - 1)) {
    EXPECT_GE(static_cast<unsigned char>(c), ' ');
    EXPECT_NE(static_cast<unsigned char>(c), 0x7f);
  }
  EXPECT_THAT(line, ::testing::Not(::testing::HasSubstr("\xc2\x9b")));
}

TEST(LogLineTest, WhatIsNoUtf8IsReplaced) {
  const char* const bad[] = {"\xff",         "\x80",         "\xc0\xaf",         "\xc3",
                             "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                             "\xe2\x82"};
  for (const char* text : bad) {
    const Json json = Read(LogLine(kNow, LogLevel::kInfo, std::string("<") + text + ">"));
    EXPECT_THAT(json["message"].get<std::string>(), ::testing::MatchesRegex("<(\xef\xbf\xbd)+>"));
  }
  const std::string good = "price: 5 \xe2\x82\xac \xf0\x9f\x8d\x8e \xc3\xa9";
  EXPECT_EQ(Read(LogLine(kNow, LogLevel::kInfo, good))["message"], good);
}

TEST(LogLineTest, WhatIsLongIsCutBetweenCharacters) {
  const std::string line = LogLine(kNow, LogLevel::kInfo, std::string(1'000'000, 'x'));
  EXPECT_LT(line.size(), 1100u);
  std::string euros, controls;
  for (int i = 0; i < 1000; ++i) euros += "\xe2\x82\xac";
  const Json json =
      Read(LogLine(kNow, LogLevel::kInfo, euros, {{"text", std::string(300, '\x01')}}));
  EXPECT_EQ(json["message"].get<std::string>(), euros.substr(0, 999));
  EXPECT_EQ(json["text"].get<std::string>(), std::string(42, '\x01'));  // six bytes each
}

TEST(LogLineTest, FactsThatFindNoRoomAreLeftOut) {
  const std::string text(200, 'x');
  std::vector<LogFact> facts(100, LogFact("key", text));
  facts.insert(facts.begin(), LogFact("first", 1));
  const std::string line = LogLine(kNow, LogLevel::kInfo, "m", facts);
  EXPECT_LE(line.size(), 4096u);
  EXPECT_GT(line.size(), 3800u);
  EXPECT_THAT(line, ::testing::EndsWith("x\"}\n"));
  EXPECT_THAT(line, ::testing::HasSubstr("\"first\":1,"));
}

}  // namespace
}  // namespace tessera::base
