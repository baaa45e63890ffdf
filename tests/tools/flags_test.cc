#include "common/flags/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "common/base/error.h"
#include "services/gateway/http/http_flags.h"
#include "tools/serve.h"

namespace tessera::tools {
namespace {

using ::testing::HasSubstr;
using namespace flags;  // NOLINT(google-build-using-namespace): the vocabulary of this test

// What --flag TEXT says; "" when it is taken.
std::string Refusal(const FlagValue& value, const std::string& text) {
  CLI::App app;
  AddFlag(app, {"flag", value, "help"});
  try {
    app.parse(std::vector<std::string>{text, "--flag"});  // CLI11 takes them in reverse
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

TEST(FlagsTest, EachKindReadsItsTextIntoItsField) {
  std::string text = "old";
  int32_t small = 1;
  uint64_t large = 1;
  float real = 0;
  bool yes = false, on = true;
  size_t bytes = 0;
  absl::Duration time;
  EXPECT_EQ(Refusal(Value(text), "new"), "");
  EXPECT_EQ(Refusal(Value(small), "-7"), "");
  EXPECT_EQ(Refusal(Value(large), "18446744073709551615"), "");
  EXPECT_EQ(Refusal(Value(real), "0.5"), "");
  EXPECT_EQ(Refusal(Value(yes), "true"), "");
  EXPECT_EQ(Refusal(OnOff(on), "off"), "");
  EXPECT_EQ(Refusal(Bytes(bytes), "64MiB"), "");
  EXPECT_EQ(Refusal(Value(time), "800ms"), "");
  EXPECT_EQ(text, "new");
  EXPECT_EQ(small, -7);
  EXPECT_EQ(large, UINT64_MAX);
  EXPECT_EQ(real, 0.5f);
  EXPECT_TRUE(yes);
  EXPECT_FALSE(on);
  EXPECT_EQ(bytes, 64u << 20);
  EXPECT_EQ(time, absl::Milliseconds(800));
}

TEST(FlagsTest, WhatIsNoValueIsRefusedAndTheFieldStaysAsItWas) {
  std::string text = "old";
  int32_t small = 1;
  uint32_t natural = 1;
  double real = 2;
  bool yes = true;
  size_t bytes = 3;
  absl::Duration time = absl::Seconds(4);
  const std::pair<FlagValue, std::vector<std::string>> cases[] = {
      {Value(text), {""}},
      {Value(small), {"", "x", "1.5", "2147483648", "1 2"}},
      {Value(natural), {"", "-1", "4294967296"}},
      {Value(real), {"", "x", "1,5"}},
      {Within(real, 0.0, 9.0), {"", "-1", "nan", "10", "inf"}},
      {Value(yes), {"", "perhaps"}},
      {OnOff(yes), {"", "true", "ON"}},
      {Bytes(bytes), {"", "lots", "-1"}},
      {Value(time), {"", "soon", "-1s"}}};
  for (const auto& [value, texts] : cases) {
    for (const std::string& bad : texts) {
      EXPECT_THAT(Refusal(value, bad), HasSubstr("--flag")) << value.type << " " << bad;
    }
  }
  EXPECT_EQ(text, "old");
  EXPECT_EQ(small, 1);
  EXPECT_EQ(natural, 1u);
  EXPECT_EQ(real, 2);
  EXPECT_TRUE(yes);
  EXPECT_EQ(bytes, 3u);
  EXPECT_EQ(time, absl::Seconds(4));
  EXPECT_EQ(Refusal(ValueOrEmpty(text), ""), "");
  EXPECT_EQ(text, "");
}

TEST(FlagsTest, AListIsTakenApartAtItsCommas) {
  std::vector<std::string> list = {"old", "ones"};
  EXPECT_EQ(List(list).text, "old,ones");
  EXPECT_EQ(Refusal(List(list), "a.example,b.example:81"), "");
  EXPECT_THAT(list, ::testing::ElementsAre("a.example", "b.example:81"));
  EXPECT_EQ(Refusal(List(list), ""), "");
  EXPECT_TRUE(list.empty());
}

TEST(FlagsTest, AChoiceNamesWhatThereIs) {
  int level = 2;
  const FlagValue value = OneOf<int>(level, {{"low", 1}, {"high", 2}});
  EXPECT_EQ(value.text, "high");
  EXPECT_THAT(Refusal(value, "middle"), HasSubstr("\"middle\"; supported: low, high"));
  EXPECT_EQ(Refusal(value, "low"), "");
  EXPECT_EQ(level, 1);
}

TEST(FlagsTest, EveryServiceFlagIsThereOnceWithHelpAndVariable) {
  CLI::App app;
  ServeOptions options;
  AddServiceFlags(app, options);  // CLI11 refuses a name twice
  int flags = 0;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_name() == "--help") continue;
    ++flags;
    EXPECT_FALSE(option->get_description().empty()) << option->get_name();
    EXPECT_EQ(option->get_envname(), EnvironmentName(option->get_name().substr(2)));
    EXPECT_FALSE(option->get_type_name().empty()) << option->get_name();
  }
  EXPECT_GT(flags, 30);
}

TEST(FlagsTest, FlagsReachTheHttpPort) {
  CLI::App app;
  gateway::http::HttpOptions options;
  AddFlags(app, gateway::http::HttpFlags(options));
  app.parse("--http_address 127.0.0.1:0 --http_threads 3 --image_url_hosts A.example,b.example");
  EXPECT_EQ(options.address, "127.0.0.1:0");
  EXPECT_EQ(options.threads, 3);
  EXPECT_THAT(options.image_url_hosts, ::testing::ElementsAre("A.example", "b.example"));
  EXPECT_TRUE(options.Validate().ok());
  for (const char* bad : {"a.example,", "http://a.example", "a.example/x", "a b", ","}) {
    app.parse(std::vector<std::string>{bad, "--image_url_hosts"});
    const absl::Status status = options.Validate();
    EXPECT_EQ(base::FieldOf(status), "image_url_hosts") << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("host:port")) << bad;
  }
  for (const char* bad : {"0", "65", "many"}) {
    EXPECT_THROW(app.parse(std::vector<std::string>{bad, "--http_threads"}), CLI::ParseError);
  }
}

TEST(FlagsTest, FlagsReachTheStore) {
  CLI::App app;
  ServeOptions options;
  AddServiceFlags(app, options);
  app.parse(
      "--embedding_store rediss://127.0.0.1:1/2 --embedding_store_bytes 2MiB --embedding_ttl 90s "
      "--embedding_store_key_file key");
  EXPECT_EQ(options.server.store.store, "rediss://127.0.0.1:1/2");
  EXPECT_EQ(options.server.store.memory_bytes, 2u << 20);
  EXPECT_EQ(options.server.store.redis.ttl, absl::Seconds(90));
  EXPECT_EQ(options.server.store.key_file, "key");
}

TEST(FlagsTest, FlagsReachTheServices) {
  CLI::App app;
  ServeOptions options;
  AddServiceFlags(app, options);
  app.parse(
      "--device reference --kv_cache_dtype f32 --embedding_dtype f32 --quality_gate off "
      "--max_image_bytes 1MiB --kv_cache_bytes 2MiB --max_images 3 --ahead_prefill off");
  ApplyServiceFlags(options);
  EXPECT_EQ(options.server.decode.device, "reference");
  EXPECT_EQ(options.server.vision.device, "reference");
  EXPECT_EQ(options.server.decode.kv_cache_dtype, DType::kF32);
  EXPECT_EQ(options.server.vision.embedding_dtype, DType::kF32);
  app.parse("--embedding_dtype int8");
  EXPECT_EQ(options.server.vision.embedding_dtype, DType::kI8);
  EXPECT_FALSE(options.server.vision.quality_gate);
  EXPECT_EQ(options.server.gateway.max_image_bytes, 1u << 20);
  EXPECT_EQ(options.server.vision.image_limits.max_bytes, 1u << 20);
  EXPECT_EQ(options.server.decode.kv_cache_bytes.bytes, 2u << 20);
  EXPECT_EQ(options.server.gateway.max_images, 3);
  EXPECT_FALSE(options.server.gateway.ahead_prefill);
  options.vision_device = "cpu";
  ApplyServiceFlags(options);
  EXPECT_EQ(options.server.vision.device, "cpu");
}

}  // namespace
}  // namespace tessera::tools
