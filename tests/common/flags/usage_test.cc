#include "common/flags/usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "common/flags/flags.h"

namespace tessera::flags {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What is said of `args`; "" when nothing is wrong.
std::string Said(const std::vector<std::string>& args, const Environment& environment = {}) {
  CLI::App app("about", "tessera");
  app.require_subcommand(1);
  int threads = 0;
  bool gate = true;
  std::string question;
  CLI::App* ask = app.add_subcommand("ask");
  AddFlags(*ask, {{"threads", Value(threads), "a"}, {"threads_gate", OnOff(gate), "b"}});
  ask->add_option("question", question)->required();
  app.add_subcommand("bench")->require_subcommand(1)->add_subcommand("kernel");
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 takes them in reverse
  } catch (const CLI::ParseError& error) {
    return UsageMessage(app, error, args, environment);
  }
  return "";
}

TEST(UsageTest, WhatIsRightIsNotSpokenOf) { EXPECT_EQ(Said({"ask", "--threads", "2", "q"}), ""); }

TEST(UsageTest, AMissingOrUnknownCommandIsToldWithTheCommands) {
  EXPECT_EQ(Said({}),
            "tessera: a command is missing; the commands are ask, bench\ntessera: see tessera "
            "--help\n");
  EXPECT_THAT(Said({"help"}), HasSubstr("there is no command help; the commands are ask, bench"));
  EXPECT_THAT(Said({"bench", "x"}), HasSubstr("no command x; the commands are kernel"));
  EXPECT_THAT(Said({"bench"}), HasSubstr("see tessera bench --help"));
}

TEST(UsageTest, AnUnknownFlagIsToldAloneWithTheNearest) {
  const std::string said = Said({"ask", "--treads=2", "q"});
  EXPECT_THAT(said, HasSubstr("there is no flag --treads; the nearest is --threads\n"));
  EXPECT_THAT(said, HasSubstr("see tessera ask --help"));
  EXPECT_THAT(Said({"ask", "--colour", "q", "red"}), HasSubstr("no flag --colour\n"));
  EXPECT_THAT(Said({"--colour", "ask", "q"}), HasSubstr("no flag --colour\n"));
}

TEST(UsageTest, AQuestionWithoutQuotesIsRecognized) {
  EXPECT_THAT(Said({"ask", "What", "is", "it?"}),
              HasSubstr("\"is it?\" is one too many; a text of several words stands in quotes"));
}

TEST(UsageTest, AVariableIsNamedThatABadValueCameFrom) {
  const Environment environment = {{"TESSERA_THREADS", "x"}, {"TESSERA_THREADS_GATE", "on"}};
  setenv("TESSERA_THREADS", "x", /*overwrite=*/1);  // CLI11 reads the real ones
  EXPECT_EQ(Said({"ask", "q"}, environment),
            "tessera: --threads: \"x\" is no whole number of this size\n"
            "tessera: --threads comes from the variable TESSERA_THREADS\n"
            "tessera: see tessera ask --help\n");
  unsetenv("TESSERA_THREADS");
  // Given beside the variable, or only the beginning of the name of the bad one.
  EXPECT_THAT(Said({"ask", "--threads", "y", "q"}, environment), Not(HasSubstr("variable")));
  EXPECT_THAT(Said({"ask", "--threads_gate=x", "q"}, environment), Not(HasSubstr("variable")));
}

}  // namespace
}  // namespace tessera::flags
