#include "common/rpc/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "tests/support/loopback.h"

namespace tessera::rpc {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(ResolveTest, AFreeAddressIsToldFromATakenOneAndFromOneOfAnotherMachine) {
  EXPECT_TRUE(CheckFree("grpc_address", "").ok());
  EXPECT_TRUE(CheckFree("grpc_address", "127.0.0.1:0").ok());
  std::string taken;
  {
    int port = 0;
    const testing::Fd listener = testing::Listen(port);
    taken = absl::StrCat("127.0.0.1:", port);
    const absl::Status status = CheckFree("grpc_address", taken);
    EXPECT_EQ(base::ReasonOf(status), "ADDRESS_UNAVAILABLE");
    EXPECT_THAT(std::string(status.message()), HasSubstr("--grpc_address"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(taken));
  }
  EXPECT_TRUE(CheckFree("grpc_address", taken).ok());
  EXPECT_EQ(base::ReasonOf(CheckFree("grpc_address", "192.0.2.1:9000")), "ADDRESS_UNAVAILABLE");
  EXPECT_EQ(CheckFree("grpc_address", "9000").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::rpc
