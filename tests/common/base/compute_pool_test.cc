#include "common/base/compute_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace tessera::base {
namespace {

class ComputePoolTest : public ::testing::TestWithParam<int> {};

// Runs one loop and says whether every task ran exactly once.
bool RunsEachTaskOnce(ComputePool& pool, int tasks) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
  pool.Run(tasks, [&runs](int task) { runs[static_cast<size_t>(task)]++; });
  return std::all_of(runs.begin(), runs.end(), [](const auto& count) { return count == 1; });
}

TEST_P(ComputePoolTest, EveryTaskRunsOnce) {
  ComputePool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (int tasks : {0, 1, 2, 3, 7, 64, 1000, 20'000}) {
    EXPECT_TRUE(RunsEachTaskOnce(pool, tasks)) << tasks;
  }
}

// Loops that follow one another at once: a thread that is late from the last one, which may have
// had fewer or more tasks, must not take part in the next as if it were the last.
TEST_P(ComputePoolTest, ALateThreadNeverRunsATaskOfAnotherLoop) {
  for (int spin_microseconds : {0, 50}) {
    ComputePool pool(GetParam(), spin_microseconds);
    std::mt19937 random(1);
    int64_t expected = 0;
    std::atomic<int64_t> sum{0};
    for (int loop = 0; loop < 50'000; ++loop) {
      const int tasks = 1 + static_cast<int>(random() % 5);
      std::atomic<int> seen{0};
      pool.Run(tasks, [&seen, &sum, tasks](int task) {
        EXPECT_LT(task, tasks);
        seen.fetch_add(1 << (5 * task), std::memory_order_relaxed);
        sum.fetch_add(task, std::memory_order_relaxed);
      });
      int once = 0;
      for (int task = 0; task < tasks; ++task) once += 1 << (5 * task), expected += task;
      ASSERT_EQ(seen.load(), once) << "loop " << loop;
    }
    EXPECT_EQ(sum.load(), expected);
  }
}

TEST_P(ComputePoolTest, ManyCallersTakeTurns) {
  ComputePool pool(GetParam());
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&pool, &wrong, caller] {
      for (int loop = 0; loop < 500; ++loop) {
        wrong += !RunsEachTaskOnce(pool, 1 + (loop + 7 * caller) % 40);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(ComputePoolTest, ALoopInsideALoopRunsItsOwnTasks) {
  ComputePool pool(GetParam());
  std::vector<std::atomic<int>> runs(20 * 20);
  pool.Run(20, [&](int outer) {
    pool.Run(outer, [&](int inner) { runs[static_cast<size_t>(20 * outer + inner)]++; });
  });
  for (int outer = 0; outer < 20; ++outer) {
    for (int inner = 0; inner < 20; ++inner) {
      EXPECT_EQ(runs[static_cast<size_t>(20 * outer + inner)], inner < outer ? 1 : 0);
    }
  }
}

TEST_P(ComputePoolTest, WhatTasksWroteIsSeenByTheCaller) {
  ComputePool pool(GetParam());
  std::vector<int> plain(512);
  for (int loop = 1; loop <= 200; ++loop) {
    pool.Run(512, [&plain](int task) { plain[static_cast<size_t>(task)] += task; });
    for (int task = 0; task < 512; ++task) {
      ASSERT_EQ(plain[static_cast<size_t>(task)], loop * task);
    }
  }
}

TEST_P(ComputePoolTest, DiesWhileItsThreadsAreParked) {
  for (int round = 0; round < 50; ++round) {
    ComputePool pool(GetParam(), /*spin_microseconds=*/0);
    if (round % 2) pool.Run(8, [](int) {});
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ComputePoolTest, ::testing::Range(1, 5));

TEST(AvailableCpusTest, IsAtLeastOne) { EXPECT_GE(ComputePool::AvailableCpus(), 1); }

}  // namespace
}  // namespace tessera::base
