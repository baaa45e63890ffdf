// Scheduler, pool and cache against a slow and obvious model: 1,000,000 random operations.

#include "tests/services/decode/schedule/scheduler_model.h"

#include <gtest/gtest.h>

#include <iostream>

namespace tessera::decode {
namespace {

#ifdef TESSERA_SANITIZED
constexpr uint32_t kSchedules = 20;
#else
constexpr uint32_t kSchedules = 500;
#endif
constexpr int kOperations = 2000;

TEST(SchedulerModelTest, RandomOperationsAgreeWithAnObviousModel) {
  SchedulerModel::Seen all;
  for (uint32_t seed = 0; seed < kSchedules; ++seed) {
    SCOPED_TRACE(seed);
    SchedulerModel model(seed);
    for (int operation = 0; operation < kOperations; ++operation) {
      model.Operate();
      ASSERT_FALSE(HasFailure()) << "operation " << operation;
    }
    ASSERT_NO_FATAL_FAILURE(model.Finish());
    const SchedulerModel::Seen seen = model.seen();
    all.preempted += seen.preempted;
    all.hits += seen.hits;
    all.evicted += seen.evicted;
    all.row_losses += seen.row_losses;
    all.ahead_dropped += seen.ahead_dropped;
    all.ahead_used += seen.ahead_used;
    all.paused_out += seen.paused_out;
    all.copies += seen.copies;
    all.finished += seen.finished;
  }
  // The walk went everywhere.
  EXPECT_GT(all.preempted, kSchedules);
  EXPECT_GT(all.hits, kSchedules);
  EXPECT_GT(all.evicted, kSchedules);
  EXPECT_GT(all.row_losses, kSchedules / 5);
  EXPECT_GT(all.ahead_dropped, kSchedules);
  EXPECT_GT(all.ahead_used, kSchedules);
  EXPECT_GT(all.paused_out, kSchedules);
  EXPECT_GT(all.copies, 10 * kSchedules);
  EXPECT_GT(all.finished, 10 * kSchedules);
  std::cout << "finished " << all.finished << ", preempted " << all.preempted << ", hit tokens "
            << all.hits << ", evicted " << all.evicted << ", rows lost " << all.row_losses
            << ", ahead dropped " << all.ahead_dropped << ", ahead used " << all.ahead_used
            << ", copies " << all.copies << ", paused out " << all.paused_out << "\n";
}

}  // namespace
}  // namespace tessera::decode
