#include "services/vision/origin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

namespace tessera::vision {
namespace {

using ::testing::HasSubstr;

TEST(OriginTest, ItIsTheServersAddressUnlessAnotherIsGiven) {
  for (const char* address : {"127.0.0.1:9100", "10.0.0.7:9100", "[::1]:9100", "vision-0:9100"}) {
    EXPECT_EQ(*OriginOf("", address), address);
    EXPECT_EQ(*OriginOf(address, "0.0.0.0:9100"), address);
    EXPECT_EQ(*OriginOf(address, "127.0.0.1:0"), address);
  }
}

TEST(OriginTest, AnAddressThatIsNoOnesIsRefused) {
  for (const char* address :
       {"0.0.0.0:9100", "[::]:9100", "[0:0::0]:9100", "0:9100", "0.0.0.0:0", "127.0.0.1:0"}) {
    for (const bool given : {false, true}) {
      const absl::Status status =
          (given ? OriginOf(address, "10.0.0.7:9100") : OriginOf("", address)).status();
      EXPECT_EQ(base::ReasonOf(status), "BAD_OPTION") << address;
      EXPECT_EQ(base::FieldOf(status), "origin");
      const std::string message(status.message());
      EXPECT_THAT(message, HasSubstr(address));
      EXPECT_THAT(message, HasSubstr("--origin"));
      EXPECT_THAT(message, HasSubstr("--vision_origins"));
    }
  }
}

TEST(OriginTest, WhatIsNoAddressIsRefused) {
  for (const char* origin : {"vision-0", "http://vision-0:9100", ":9100", "vision-0:port"}) {
    const absl::Status status = OriginOf(origin, "10.0.0.7:9100").status();
    EXPECT_EQ(base::ReasonOf(status), "BAD_OPTION") << origin;
    EXPECT_EQ(base::FieldOf(status), "origin");
    EXPECT_THAT(std::string(status.message()), HasSubstr("--origin"));
  }
}

}  // namespace
}  // namespace tessera::vision
