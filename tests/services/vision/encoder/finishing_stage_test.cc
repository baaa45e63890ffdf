#include "services/vision/encoder/finishing_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/store/rows.h"
#include "tests/services/vision/encoder/pipeline_fixture.h"

namespace tessera::vision {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FinishingStageTest : public EncodePipelineTest {};

TEST_F(FinishingStageTest, RowsThatAreNoNumbersAreAnErrorAndNeverStored) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), 70000.0f}) {
    tower_.second = bad;
    Start();
    const auto encoded = Submit("ab").get();
    EXPECT_EQ(encoded.status().code(), absl::StatusCode::kInternal) << bad;
    EXPECT_EQ(base::ReasonOf(encoded.status()), "NONFINITE_ROWS");
    EXPECT_THAT(store_.records(), IsEmpty());
  }
}

TEST_F(FinishingStageTest, AStoreThatIsDownFailsNoRequest) {
  store_.broken = true;
  Start();
  const auto encoded = Submit("ab").get();
  ASSERT_TRUE(encoded.ok());
  EXPECT_FALSE(encoded->existed);
}

TEST_F(FinishingStageTest, RowsAreInt8WhereThatIsAsked) {
  options_.record_dtype = DType::kI8;
  Start();
  const auto encoded = Submit("ab").get();
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(encoded->record->dtype, DType::kI8);
  EXPECT_THAT(ToFloats(store::ToFloatRows(encoded->record).view),
              ElementsAre(FloatNear(97, 1e-4), FloatNear(0.5f, 97.0f / 254)));
}

TEST_F(FinishingStageTest, RowsAreHalvesByDefault) {
  Start();
  const auto encoded = Submit("ab").get();
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(encoded->record->dtype, DType::kF16);
  EXPECT_THAT(ToFloats(encoded->record->view()), ElementsAre(97, 0.5f));
}

// The tower's thread goes on while a store is slow, as far as the bound.
TEST_F(FinishingStageTest, ASlowStoreDoesNotHoldUpTheNextBatch) {
  Gate put;
  store_.put_hook = [&] { put.Pass(); };
  options_.max_unfinished_batches = 2;
  Start();
  Answer first = Submit("a");
  put.AwaitArrivals(1);
  Answer second = Submit("b");
  while (pipeline_->stats().batches < 2) std::this_thread::yield();  // while the first one waits
  Answer third = Submit("c");
  while (!pipeline_->stats().encoder_has_work) std::this_thread::yield();  // it is prepared
  EXPECT_THAT(tower_.batches(), ElementsAre(1, 1)) << "a third would be unfinished, too";
  EXPECT_EQ(pipeline_->stats().pending_images, 3);
  EXPECT_TRUE(pipeline_->stats().finishing_has_work);
  EXPECT_EQ(pipeline_->stats().finished_batches, 0) << "so a watchdog sees that it stands still";
  EXPECT_THAT(store_.records(), IsEmpty());
  put.Open();
  EXPECT_TRUE(first.get().ok() && second.get().ok() && third.get().ok());
  EXPECT_THAT(tower_.batches(), ElementsAre(1, 1, 1));
  EXPECT_TRUE(pipeline_->Drain(absl::InfiniteFuture()));
  while (pipeline_->stats().finishing_has_work) std::this_thread::yield();
  EXPECT_EQ(pipeline_->stats().finished_batches, 3);
}

TEST_F(FinishingStageTest, ASlowWaiterDoesNotHoldUpTheNextBatch) {
  Gate told;
  Start();
  EncodeTask task = TaskOf("a");
  task.done = [&](absl::StatusOr<Encoded> encoded) {
    EXPECT_TRUE(encoded.ok());
    told.Pass();  // a line for the log, say
  };
  ASSERT_TRUE(ReserveAndSubmit(pipeline_->NewWaiter(), std::move(task)).ok());
  told.AwaitArrivals(1);
  Answer second = Submit("b");
  while (pipeline_->stats().batches < 2) std::this_thread::yield();
  EXPECT_FALSE(pipeline_->Drain(clock_.Now()));
  told.Open();
  EXPECT_TRUE(second.get().ok());
  EXPECT_TRUE(pipeline_->Drain(absl::InfiniteFuture()));
}

TEST_F(FinishingStageTest, AnswersComeInTheOrderOfTheBatches) {
  Gate put;
  store_.put_hook = [&] { put.Pass(); };
  options_.max_batch_images = 1;
  options_.max_unfinished_batches = 8;
  Start();
  std::vector<char> order;  // by the finishing thread
  for (const char* picture : {"a", "b", "c"}) {
    EncodeTask task = TaskOf(picture);
    task.done = [&order, picture](absl::StatusOr<Encoded> encoded) {
      EXPECT_TRUE(encoded.ok());
      order.push_back(picture[0]);
    };
    ASSERT_TRUE(ReserveAndSubmit(pipeline_->NewWaiter(), std::move(task)).ok());
  }
  while (pipeline_->stats().batches < 3) std::this_thread::yield();
  put.Open();
  EXPECT_TRUE(pipeline_->Drain(absl::InfiniteFuture()));
  EXPECT_THAT(order, ElementsAre('a', 'b', 'c'));
}

TEST_F(FinishingStageTest, WhoCancelsBetweenTowerAndRecordIsToldAtOnceAndTheRecordIsStored) {
  Gate put;
  store_.put_hook = [&] { put.Pass(); };
  Start();
  Answer busy = Submit("a");
  put.AwaitArrivals(1);
  WaiterId id = 0;
  Answer left = Submit("b", &id);
  while (pipeline_->stats().batches < 2) std::this_thread::yield();
  pipeline_->Cancel(id);
  EXPECT_EQ(left.get().status().code(), absl::StatusCode::kCancelled);
  Answer joined = Submit("b");  // not encoded again
  put.Open();
  EXPECT_TRUE(busy.get().ok());
  const auto encoded = joined.get();
  ASSERT_TRUE(encoded.ok());
  EXPECT_FALSE(encoded->existed);
  EXPECT_THAT(tower_.batches(), ElementsAre(1, 1));
  EXPECT_THAT(store_.records(), SizeIs(2));
}

TEST_F(FinishingStageTest, WhatIsUnfinishedAtTheEndIsStoredAndItsWaitersAreTold) {
  Gate put;
  store_.put_hook = [&] { put.Pass(); };
  Start();
  Answer first = Submit("a");
  put.AwaitArrivals(1);
  Answer second = Submit("b");
  while (pipeline_->stats().batches < 2) std::this_thread::yield();
  std::thread end([this] { pipeline_.reset(); });
  EXPECT_EQ(first.get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(second.get().status().code(), absl::StatusCode::kUnavailable);
  put.Open();
  end.join();
  EXPECT_THAT(store_.records(), SizeIs(2));
}

// The device's health is known before the answer, whatever the store does.
TEST_F(FinishingStageTest, HealthDoesNotWaitForASlowStore) {
  Gate put;
  store_.put_hook = [&] { put.Pass(); };
  options_.max_unfinished_batches = 8;
  Start();
  Answer busy = Submit("a");
  put.AwaitArrivals(1);
  tower_.SetStatus(absl::InternalError("no device"));
  std::vector<Answer> failed;
  for (const char* picture : {"b", "cc", "ddd"}) failed.push_back(Submit(picture));
  while (pipeline_->stats().health.ok()) std::this_thread::yield();
  EXPECT_EQ(base::ReasonOf(pipeline_->stats().health), "DEVICE_FAILED");
  put.Open();
  EXPECT_TRUE(busy.get().ok());
  for (Answer& answer : failed)
    EXPECT_EQ(answer.get().status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace tessera::vision
