#include "common/rpc/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::rpc {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

TEST(ResolveTest, NumbersStayAndNamesBecomeNumbers) {
  EXPECT_THAT(*ResolveAddress("127.0.0.1:9200"), ElementsAre("127.0.0.1:9200"));
  EXPECT_THAT(*ResolveAddress("[::1]:9200"), ElementsAre("[::1]:9200"));
  const auto local = ResolveAddress("localhost:80");
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_THAT(*local, Contains(::testing::AnyOf("127.0.0.1:80", "[::1]:80")));
}

TEST(ResolveTest, WhatIsNoAddressOrNoNameIsTold) {
  EXPECT_EQ(ResolveAddress("host").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ResolveAddress("host:99999").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ResolveAddress("no.such.name.invalid:1").status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tessera::rpc
