#include "common/flags/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "common/flags/flags.h"

namespace tessera::flags {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class EnvironmentTest : public ::testing::Test {
 protected:
  EnvironmentTest() {
    CLI::App* serve = app_.add_subcommand("serve");
    AddFlags(*serve, {{"model", Value(model_), "a"},
                      {"kv_cache_bytes", Bytes(bytes_), "b"},
                      {"quality_warning", ValueOrEmpty(warning_), "c"}});
    AddFlag(*app_.add_subcommand("bench"), {"threads", Value(threads_), "d"});
  }
  std::vector<std::string> Unknown(const Environment& environment) {
    return UnknownVariables(app_, environment);
  }

  CLI::App app_;
  std::string model_ = "m", warning_ = "w";
  size_t bytes_ = 1;
  int threads_ = 2;
};

TEST_F(EnvironmentTest, OurVariablesAreThoseWithThePrefix) {
  const char* const entries[] = {
      "PATH=/bin", "TESSERA_A=b=c", "TESSERA_B=", "TESSERAC=1", "TESSERA_BROKEN", nullptr};
  EXPECT_THAT(OurVariables(entries), ElementsAre(Pair("TESSERA_A", "b=c"), Pair("TESSERA_B", "")));
}

TEST_F(EnvironmentTest, ATypoIsToldWithTheNearestFlagOfAnyCommand) {
  EXPECT_THAT(Unknown({{"TESSERA_KV_CACHE_BYTE", "1"}, {"TESSERA_TREADS", ""}}),
              ElementsAre(AllOf(HasSubstr("TESSERA_KV_CACHE_BYTE belongs to no flag"),
                                HasSubstr("TESSERA_KV_CACHE_BYTES (--kv_cache_bytes)")),
                          AllOf(HasSubstr("TESSERA_TREADS"), HasSubstr("(--threads)"))));
}

TEST_F(EnvironmentTest, FlagsTestsAndServiceLinksAreNoTypos) {
  EXPECT_THAT(Unknown({{"TESSERA_MODEL", "x"},
                       {"TESSERA_THREADS", "x"},
                       {"TESSERA_GOLDENS", "x"},
                       {"TESSERA_BINARY", "x"},
                       {"TESSERA_GATEWAY_SERVICE_HOST", "10.0.0.1"},
                       {"TESSERA_GATEWAY_SERVICE_PORT_GRPC", "9000"},
                       {"TESSERA_GATEWAY_PORT", "tcp://10.0.0.1:9000"},
                       {"TESSERA_GATEWAY_PORT_9000_TCP_ADDR", "10.0.0.1"}}),
              IsEmpty());
}

TEST_F(EnvironmentTest, AnEmptyVariableIsTheEmptyTextWhereThatIsAValue) {
  app_.parse("serve");
  ApplyEmptyVariables(app_, {{"TESSERA_QUALITY_WARNING", ""}});
  EXPECT_EQ(warning_, "");
}

TEST_F(EnvironmentTest, AnEmptyVariableIsRefusedByItsNameWhereItIsNone) {
  app_.parse("serve");
  try {
    ApplyEmptyVariables(app_, {{"TESSERA_KV_CACHE_BYTES", ""}});
    FAIL() << "nothing was thrown";
  } catch (const CLI::ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("TESSERA_KV_CACHE_BYTES"));
  }
  EXPECT_EQ(bytes_, 1u);
}

TEST_F(EnvironmentTest, AFlagThatWasGivenWinsAndOtherCommandsDoNotMind) {
  app_.parse("serve --kv_cache_bytes 5 --quality_warning given");
  const Environment environment = {
      {"TESSERA_KV_CACHE_BYTES", ""}, {"TESSERA_QUALITY_WARNING", ""}, {"TESSERA_THREADS", ""}};
  EXPECT_THAT(EmptyVariables(app_, environment), IsEmpty());
  ApplyEmptyVariables(app_, environment);
  EXPECT_EQ(bytes_, 5u);
  EXPECT_EQ(warning_, "given");
  EXPECT_THAT(EmptyVariables(app_, {{"TESSERA_MODEL", ""}}), ElementsAre("TESSERA_MODEL"));
}

}  // namespace
}  // namespace tessera::flags
