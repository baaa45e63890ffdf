#include "common/base/worker_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace tessera::base {
namespace {

using ::testing::ElementsAre;

TEST(WorkerPoolTest, TasksRunInTheOrderInWhichTheyCameAndAllBeforeTheEnd) {
  std::vector<int> ran;
  {
    std::promise<void> go;
    WorkerPool pool(1, 8);
    ASSERT_TRUE(pool.TryPush([&] { go.get_future().wait(); }));
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(pool.TryPush([&ran, i] { ran.push_back(i); }));
    }
    go.set_value();
  }
  EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3));
}

TEST(WorkerPoolTest, ATaskThatFindsNoRoomIsRefusedAtOnce) {
  std::promise<void> begun, go;
  int ran = 0;
  {
    WorkerPool pool(1, 2);
    ASSERT_TRUE(pool.TryPush([&] {
      begun.set_value();
      go.get_future().wait();
    }));
    begun.get_future().wait();  // it waits no more: both places are free
    EXPECT_TRUE(pool.TryPush([&] { ++ran; }));
    EXPECT_TRUE(pool.TryPush([&] { ++ran; }));
    EXPECT_FALSE(pool.TryPush([&] { ran += 100; }));
    go.set_value();
  }
  EXPECT_EQ(ran, 2);
}

// Each waits for the other: with one thread fewer neither would end.
TEST(WorkerPoolTest, AsManyTasksAsThreadsRunTogether) {
  std::promise<void> here[2];
  WorkerPool pool(2, 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(pool.TryPush([&here, i] {
      here[i].set_value();
      here[1 - i].get_future().wait();
    }));
  }
}

}  // namespace
}  // namespace tessera::base
