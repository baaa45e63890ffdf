#include "common/base/file_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"

namespace tessera::base {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteOver;

class FileWatchTest : public ::testing::Test {
 protected:
  FileWatchTest() {
    WriteOver("a", one_);
    WriteOver("b", two_);
    watch_.emplace(std::vector<std::string>{one_, two_, ""}, "things");
  }
  // How often the files are read at a look, a second after the last; with the outcome `outcome_`.
  int Reads() {
    now_ += absl::Seconds(1);
    int reads = 0;
    watch_->Look(now_, [&] {
      ++reads;
      return outcome_;
    });
    return reads;
  }
  std::string LogOf(int looks) {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < looks; ++i) Reads();
    return ::testing::internal::GetCapturedStderr();
  }
  static int64_t Lines(const std::string& log) { return std::count(log.begin(), log.end(), '\n'); }

  const TempDir dir_;
  const std::string one_ = dir_.path() + "/one", two_ = dir_.path() + "/two";
  std::optional<FileWatch> watch_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  absl::Status outcome_;
};

TEST_F(FileWatchTest, WhatStaysAsItIsIsNotReadAgain) {
  EXPECT_EQ(Reads(), 0);
  EXPECT_EQ(Reads(), 0);
}

TEST_F(FileWatchTest, EveryChangeOfAFileIsRead) {
  const std::vector<std::function<void()>> changes = {
      [this] { WriteOver("c", one_); },                       // another file
      [this] { std::ofstream(two_, std::ios::app) << "d"; },  // another content
      [this] { std::filesystem::remove(two_); },
      [this] { WriteOver("b", two_); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i]();
    EXPECT_EQ(Reads(), 1) << i;
    EXPECT_EQ(Reads(), 0) << i;
  }
}

TEST_F(FileWatchTest, TheFilesAreLookedAtOnceASecond) {
  EXPECT_EQ(Reads(), 0);
  WriteOver("c", one_);
  now_ -= absl::Milliseconds(1);
  EXPECT_EQ(Reads(), 0);  // 999 ms after the look of before
  now_ -= absl::Milliseconds(999);
  EXPECT_EQ(Reads(), 1);
}

TEST_F(FileWatchTest, AFailureIsTriedAgainUntilItPassesAndToldOnce) {
  WriteOver("c", one_);
  outcome_ = absl::ResourceExhaustedError("no file is left");
  const std::string failed = LogOf(1);
  EXPECT_EQ(Lines(failed), 1);
  EXPECT_THAT(failed, HasSubstr("the old things stay in use: no file is left"));
  EXPECT_EQ(LogOf(5), "");
  EXPECT_EQ(Reads(), 1);
  outcome_ = absl::OkStatus();
  const std::string passed = LogOf(5);
  EXPECT_EQ(Lines(passed), 1);
  EXPECT_THAT(passed, HasSubstr("the new things are in use"));
  EXPECT_EQ(Reads(), 0);
}

TEST_F(FileWatchTest, ANewChangeThatFailsAndAnotherFailureAreToldToo) {
  WriteOver("c", one_);
  outcome_ = absl::InvalidArgumentError("broken");
  EXPECT_EQ(Lines(LogOf(3)), 1);
  WriteOver("d", one_);
  EXPECT_EQ(Lines(LogOf(3)), 1);
  outcome_ = absl::InvalidArgumentError("broken otherwise");
  EXPECT_EQ(Lines(LogOf(3)), 1);
}

TEST_F(FileWatchTest, WhoComesWhileTheFilesAreReadGoesOn) {
  WriteOver("c", one_);
  now_ += absl::Seconds(1);
  int reads = 0;
  watch_->Look(now_, [&] {
    ++reads;
    EXPECT_EQ(Reads(), 0);
    return absl::OkStatus();
  });
  EXPECT_EQ(reads, 1);
}

TEST_F(FileWatchTest, AReadThatThrowsIsTriedAgain) {
  WriteOver("c", one_);
  now_ += absl::Seconds(1);
  EXPECT_THROW(watch_->Look(now_, []() -> absl::Status { throw std::runtime_error("no memory"); }),
               std::runtime_error);
  EXPECT_EQ(Reads(), 1);
  EXPECT_EQ(Reads(), 0);
}

}  // namespace
}  // namespace tessera::base
