#include "common/rpc/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

namespace tessera::rpc {
namespace {

TEST(AccessTest, WithoutKeysOnlyThisMachineIsServed) {
  const AccessOptions none;
  for (const char* here : {"", "127.0.0.1:9000", "localhost:0", "[::1]:9000"}) {
    EXPECT_TRUE(CheckExposure(none, "a_flag", here).ok()) << here;
  }
  for (const char* network : {"0.0.0.0:9000", "[::]:9000", "10.1.2.3:0", "a.example.com:1"}) {
    const absl::Status status = CheckExposure(none, "a_flag", network);
    EXPECT_EQ(base::ReasonOf(status), "BAD_OPTION") << network;
    EXPECT_EQ(base::FieldOf(status), "a_flag");
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("--allow_unauthenticated_network"));
  }
}

TEST(AccessTest, KeysOrTheWordOfTheOperatorOpenTheNetwork) {
  AccessOptions keys;
  keys.api_keys_file = "keys";
  EXPECT_TRUE(CheckExposure(keys, "a_flag", "0.0.0.0:9000").ok());
  AccessOptions allowed;
  allowed.allow_unauthenticated_network = true;
  EXPECT_TRUE(CheckExposure(allowed, "a_flag", "0.0.0.0:9000").ok());
}

// Certificates of clients say which machines may come, not which tenant asks.
TEST(AccessTest, MutualTlsAloneIsNoKey) {
  AccessOptions options;
  options.tls.ca = "ca.pem";
  EXPECT_FALSE(CheckExposure(options, "a_flag", "0.0.0.0:9000").ok());
}

}  // namespace
}  // namespace tessera::rpc
