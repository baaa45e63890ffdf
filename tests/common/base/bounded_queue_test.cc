#include "common/base/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace tessera::base {
namespace {

TEST(BoundedQueueTest, IsFirstInFirstOutUpToItsCapacity) {
  BoundedQueue<std::unique_ptr<int>> queue(2);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(2)));
  auto third = std::make_unique<int>(3);
  EXPECT_FALSE(queue.TryPush(std::move(third)));
  EXPECT_NE(third, nullptr);  // untouched
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(**queue.Pop(), 1);
  EXPECT_TRUE(queue.TryPush(std::move(third)));
  EXPECT_EQ(**queue.TryPop(), 2);
  EXPECT_EQ(**queue.TryPop(), 3);
  EXPECT_FALSE(queue.TryPop().has_value());
}

TEST(BoundedQueueTest, WhatIsInsideCanBeTakenAfterClose) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.TryPush(1));
  queue.Close();
  EXPECT_FALSE(queue.TryPush(2));
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), std::nullopt);
  queue.Close();
}

TEST(BoundedQueueTest, CloseWakesEveryWaiter) {
  BoundedQueue<int> queue(1);
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&queue] { EXPECT_EQ(queue.Pop(), std::nullopt); });
  }
  queue.Close();
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(BoundedQueueTest, ManyThreadsPassEveryElementOnce) {
  constexpr int kEach = 5000;
  BoundedQueue<int> queue(16);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> takers, givers;
  for (int t = 0; t < 2; ++t) {
    takers.emplace_back([&] {
      while (auto value = queue.Pop()) sum += *value;
    });
    givers.emplace_back([&] {
      for (int i = 1; i <= kEach; ++i) {
        int value = i;
        while (!queue.TryPush(std::move(value))) std::this_thread::yield();
      }
    });
  }
  for (std::thread& giver : givers) giver.join();
  queue.Close();
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(sum, 2 * int64_t{kEach} * (kEach + 1) / 2);
}

}  // namespace
}  // namespace tessera::base
