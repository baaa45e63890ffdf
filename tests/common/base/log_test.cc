#include "common/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::base {
namespace {

std::string Logged(LogLevel level, absl::string_view message) {
  testing::internal::CaptureStderr();
  Log(level, message);
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, IsOneLineWithTimeAndLevel) {
  EXPECT_THAT(Logged(LogLevel::kInfo, "ready"),
              testing::MatchesRegex("[0-9-]+T[0-9:]+\\.[0-9]{3}Z I ready\n"));
  EXPECT_THAT(Logged(LogLevel::kWarning, "x"), testing::HasSubstr(" W x\n"));
  EXPECT_THAT(Logged(LogLevel::kError, "x"), testing::HasSubstr(" E x\n"));
}

TEST(LogTest, AMessageCannotForgeALineOrMoveTheCursor) {
  const std::string line = Logged(LogLevel::kInfo, "a\nb\x1b[2J\r\xff");
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  for (char c : line.substr(0, line.size() - 1)) EXPECT_GE(static_cast<unsigned char>(c), ' ');
}

TEST(LogTest, ALongMessageIsCut) {
  EXPECT_LT(Logged(LogLevel::kInfo, std::string(1'000'000, 'x')).size(), 1100u);
}

}  // namespace
}  // namespace tessera::base
