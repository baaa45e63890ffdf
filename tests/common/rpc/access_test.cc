#include "common/rpc/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

namespace tessera::rpc {
namespace {

constexpr const char* kHere[] = {"127.0.0.1:0", "127.255.0.9:1", "localhost:9000", "[::1]:9000"};
constexpr const char* kNetwork[] = {"0.0.0.0:9000",
                                    "10.0.0.1:1",
                                    "[::]:1",
                                    "127.0.0.1.example.com:1",
                                    "127.1:1",
                                    "128.0.0.1:1",
                                    "localhost.example.com:1",
                                    "localhost",
                                    ":9000",
                                    "[fe80::1]:1"};

TEST(AccessTest, WithoutKeysOnlyThisMachineIsServed) {
  const AccessOptions none;
  EXPECT_TRUE(CheckExposure(none, "a_flag", "").ok());
  for (const char* here : kHere) EXPECT_TRUE(CheckExposure(none, "a_flag", here).ok()) << here;
  for (const char* network : kNetwork) {
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

TEST(AccessTest, AnInnerServiceIsReachedFromHereOrByWhoIsKnownOrTrusted) {
  const InnerAccessOptions none;
  InnerAccessOptions mutual, trusted;
  mutual.tls.ca = "ca.pem";
  trusted.trusted_network = true;
  for (const char* here : kHere) EXPECT_TRUE(CheckInnerExposure(none, here).ok()) << here;
  for (const char* network : kNetwork) {
    const absl::Status status = CheckInnerExposure(none, network);
    EXPECT_EQ(base::ReasonOf(status), "BAD_OPTION") << network;
    EXPECT_EQ(base::FieldOf(status), "grpc_address");
    EXPECT_TRUE(CheckInnerExposure(mutual, network).ok()) << network;
    EXPECT_TRUE(CheckInnerExposure(trusted, network).ok()) << network;
  }
}

}  // namespace
}  // namespace tessera::rpc
