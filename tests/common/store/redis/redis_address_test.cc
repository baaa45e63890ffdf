#include "common/store/redis/redis_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

namespace tessera::store {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RedisAddressTest, ReadsEveryPart) {
  const auto address = ParseRedisUrl("rediss://reader:p%40ss%2Fw%3Ard%00@cache-1.example:6380/3");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_TRUE(address->tls);
  EXPECT_EQ(address->user, "reader");
  EXPECT_EQ(address->password, std::string("p@ss/w:rd\0", 10));
  EXPECT_EQ(address->host, "cache-1.example");
  EXPECT_EQ(address->port, 6380);
  EXPECT_EQ(address->database, 3);
  EXPECT_EQ(address->Text(), "cache-1.example:6380/3");
}

TEST(RedisAddressTest, WhatIsLeftOutHasADefault) {
  const auto address = ParseRedisUrl("redis://localhost");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_FALSE(address->tls);
  EXPECT_EQ(address->user, "");
  EXPECT_EQ(address->password, "");
  EXPECT_EQ(address->port, 6379);
  EXPECT_EQ(address->database, 0);
  EXPECT_EQ(ParseRedisUrl("redis://localhost/")->database, 0);
  EXPECT_EQ(ParseRedisUrl("redis://:secret@localhost")->password, "secret");
}

TEST(RedisAddressTest, AnIpv6AddressStandsInBrackets) {
  const auto address = ParseRedisUrl("redis://[::1]:7000");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->host, "::1");
  EXPECT_EQ(address->port, 7000);
  EXPECT_EQ(address->Text(), "[::1]:7000/0");
}

TEST(RedisAddressTest, WhatIsNoUrlIsABadOptionThatNeverTellsThePassword) {
  for (const char* url : {"redis:/localhost",
                          "http://:hush@localhost",
                          "redis://",
                          "redis://:hush@",
                          "memory",
                          "redis://hush@localhost",
                          "redis://user:@localhost",
                          "redis://:hu%sh@localhost",
                          "redis://:hush%4@localhost",
                          "redis://:hush@local host",
                          "redis://:hush@localhost:",
                          "redis://:hush@localhost:0",
                          "redis://:hush@localhost:65536",
                          "redis://:hush@localhost:1x",
                          "redis://:hush@localhost/hush",
                          "redis://:hush@localhost/-1",
                          "redis://:hush@localhost/1/2",
                          "redis://:hush@localhost/99999999999",
                          "redis://:hush@[::1",
                          "redis://:hush@[::1]7",
                          "redis://:hush@[hush]",
                          "redis://:hu/sh@localhost",
                          "redis://:hush@localhost?x=hush"}) {
    const absl::Status status = ParseRedisUrl(url).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_EQ(base::ReasonOf(status), "BAD_OPTION") << url;
    EXPECT_EQ(base::FieldOf(status), "embedding_store") << url;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("hu"))) << url;
  }
}

TEST(RedisAddressTest, TheSchemeAloneSaysWhetherItIsARedis) {
  EXPECT_TRUE(IsRedisUrl("redis://"));
  EXPECT_TRUE(IsRedisUrl("rediss://x"));
  EXPECT_FALSE(IsRedisUrl("memory"));
  EXPECT_FALSE(IsRedisUrl("redis"));
}

}  // namespace
}  // namespace tessera::store
