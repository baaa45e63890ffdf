#include "common/weights/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include "common/base/error.h"
#include "tests/support/temp_dir.h"

namespace tessera::weights {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() { std::ofstream(path_) << std::string(1 << 20, 'x'); }

  const testing::TempDir dir_;
  const std::string path_ = dir_.path() + "/model.safetensors";
};

int Sum(absl::string_view bytes) {
  int sum = 0;
  for (const char c : bytes) sum += c;
  return sum;
}

TEST_F(MappedFileTest, AFileThatIsCutWhileItIsReadEndsTheProcessWithItsName) {
  const auto file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EXIT(
      {
        truncate(path_.c_str(), 4096);
        _exit(Sum((*file)->bytes()) == 0 ? 2 : 3);
      },
      ::testing::ExitedWithCode(1), "model.safetensors: was cut short");
}

TEST_F(MappedFileTest, OfManyFilesTheOneThatWasCutIsNamed) {
  const std::string other = dir_.path() + "/other.safetensors";
  std::ofstream(other) << std::string(1 << 20, 'y');
  const auto first = MappedFile::Open(path_), second = MappedFile::Open(other);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EXIT(
      {
        truncate(other.c_str(), 0);
        _exit(Sum((*first)->bytes()) + Sum((*second)->bytes()) == 0 ? 2 : 3);
      },
      ::testing::ExitedWithCode(1), "other.safetensors: was cut short");
}

TEST_F(MappedFileTest, AnotherBusErrorIsNotTakenForAFiles) {
  const auto file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EXIT(
      {
        std::raise(SIGBUS);
        _exit(2);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(MappedFileTest, WhatCannotBeOpenedIsToldWithItsPath) {
  for (const std::string& path :
       {dir_.path() + "/none", dir_.path(), dir_.path() + "/" + std::string(300, 'n')}) {
    const auto file = MappedFile::Open(path);
    EXPECT_EQ(base::ReasonOf(file.status()), "WEIGHTS_UNREADABLE");
    EXPECT_THAT(std::string(file.status().message()), ::testing::HasSubstr(path));
  }
}

}  // namespace
}  // namespace tessera::weights
