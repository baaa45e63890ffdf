#include "common/flags/command.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/error.h"

namespace tessera::flags {
namespace {

class CommandTest : public ::testing::Test {
 protected:
  CommandTest() {
    command_.AddRequired({"model", Value(model_), "directory"});
    command_.Add({{"count", Value(count_), "how many"}, {"store", Value(store_), "where"}});
  }
  std::optional<int> Parse(std::vector<std::string> args, const char* variable = nullptr) {
    args.insert(args.begin(), "binary");
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    const char* const environment[] = {variable, nullptr};
    return command_.Parse(static_cast<int>(argv.size()), argv.data(), environment);
  }

  std::string model_, store_ = "memory";
  int32_t count_ = 1;
  Command command_{"binary", "does things"};
};

TEST_F(CommandTest, FlagsSetTheirFields) {
  EXPECT_EQ(Parse({"--model", "dir", "--count", "7"}), std::nullopt);
  EXPECT_EQ(model_, "dir");
  EXPECT_EQ(count_, 7);
  EXPECT_EQ(command_.Changed(), (std::vector<std::string>{"--model=dir", "--count=7"}));
}

TEST_F(CommandTest, WrongUsageIsTwoAndHelpIsWell) {
  EXPECT_EQ(Parse({}), 2);
  EXPECT_EQ(Parse({"--model", "d", "--count", "many"}), 2);
  EXPECT_EQ(Parse({"--nonsense"}), 2);
  EXPECT_EQ(Parse({"--help"}), 0);
  EXPECT_EQ(Parse({"--version"}), 0);
}

TEST_F(CommandTest, CredentialsOfAUrlAreNotShown) {
  EXPECT_EQ(Parse({"--model", "d", "--store", "redis://me:secret@host:1/2"}), std::nullopt);
  EXPECT_EQ(store_, "redis://me:secret@host:1/2");
  EXPECT_EQ(command_.Changed().back(), "--store=redis://***@host:1/2");
}

TEST(ExitCodeTest, BadOptionsAreWrongUsageAndAllElseHasFailed) {
  EXPECT_EQ(ExitCode("b", absl::OkStatus()), 0);
  EXPECT_EQ(ExitCode("b", base::BadField("count", "BAD_OPTION", "no")), 2);
  EXPECT_EQ(ExitCode("b", absl::InternalError("broken")), 1);
}

}  // namespace
}  // namespace tessera::flags
