#include "common/base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/base/json.h"

namespace tessera::base {
namespace {

TEST(LogTest, LinesOfManyThreadsStayWhole) {
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) Log(LogLevel::kInfo, std::string(500, 'x'), {{"i", i}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> lines =
      absl::StrSplit(::testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty());
  EXPECT_EQ(lines.size(), 800u);
  for (const std::string& line : lines) {
    ASSERT_TRUE(ParseJson(line).ok()) << line;
  }
}

}  // namespace
}  // namespace tessera::base
