#include "common/store/set/store_set.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "common/base/error.h"
#include "tests/support/temp_dir.h"

namespace tessera::store {
namespace {

class StoreSetTest : public ::testing::Test {
 protected:
  std::string KeyFile(size_t bytes) {
    const std::string path = dir_.path() + "/key";
    std::ofstream(path) << std::string(bytes, 'k');
    return path;
  }

  testing::TempDir dir_;
  metrics::Metrics metrics_{"m"};
};

TEST_F(StoreSetTest, MemoryAloneIsTheWhole) {
  const auto set = StoreSet::Create({}, metrics_);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ((*set)->shared(), nullptr);
  EXPECT_EQ(&(*set)->all(), &(*set)->local());
}

TEST_F(StoreSetTest, ARedisStandsBehindTheMemoryAndIsNotWaitedFor) {
  StoreSetOptions options;
  options.store = "redis://127.0.0.1:1/0";  // nobody is there
  const auto set = StoreSet::Create(options, metrics_);
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_NE((*set)->shared(), nullptr);
  EXPECT_EQ(&(*set)->all(), (*set)->shared());
  EXPECT_EQ((*set)->shared()->GetFrom(EmbeddingKey()).record, nullptr);
}

TEST_F(StoreSetTest, WhatIsNoStoreOrNoKeyIsTold) {
  StoreSetOptions options;
  options.store = "memcached://x";
  EXPECT_EQ(base::FieldOf(StoreSet::Create(options, metrics_).status()), "embedding_store");
  options.store = "memory";
  options.key_file = KeyFile(31);
  EXPECT_EQ(base::FieldOf(StoreSet::Create(options, metrics_).status()),
            "embedding_store_key_file");
  options.key_file = dir_.path() + "/none";
  EXPECT_FALSE(StoreSet::Create(options, metrics_).ok());
  options.key_file = KeyFile(32);
  EXPECT_TRUE(StoreSet::Create(options, metrics_).ok());
}

}  // namespace
}  // namespace tessera::store
